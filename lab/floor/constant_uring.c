// Answers every request head with one constant response over io_uring, without parsing.
//
// usage: constant_uring PORT [close] | constant_uring probe
//
// It uses the ring as the cheapest server would: multishot accept, multishot receive into a ring of
// provided buffers, one send per response, one system call per batch. The few structures are set up
// by hand, so that building needs only the kernel's headers (6.1 or later).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 4096, COMPLETIONS = 65536, BUFFERS = 4096, BUFFER_LEN = 1024, GROUP = 1 };
enum { ACCEPT = 1, RECEIVE, SEND, CLOSE };

#define HEAD                                                                                       \
    "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"                    \
    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n"

static const char kept[] = HEAD "\r\nHello, World!";
static const char closing[] = HEAD "Connection: close\r\n\r\nHello, World!";
static const char *response = kept;
static size_t response_len = sizeof kept - 1;

static int ring, listener, closes;
static unsigned *sq_head, *sq_tail, *sq_mask, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static struct io_uring_buf_ring *buffers;
static char *memory;
static unsigned pending, buffer_tail;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void enter(unsigned wait) {
    unsigned flags = IORING_ENTER_GETEVENTS;
    long done = syscall(SYS_io_uring_enter, ring, pending, wait, flags, NULL, 0);
    if (done < 0 && errno != EINTR && errno != EBUSY && errno != EAGAIN) fail("io_uring_enter");
    if (done > 0) pending -= done;
}

static struct io_uring_sqe *next(int op, int fd, int kind) {
    unsigned tail = *sq_tail;
    while (tail - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE) == ENTRIES) enter(0);
    struct io_uring_sqe *sqe = &sqes[tail & *sq_mask];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = op;
    sqe->fd = fd;
    sqe->user_data = (unsigned long long)kind << 32 | (unsigned)fd;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    pending++;
    return sqe;
}

static void start_accept(void) {
    struct io_uring_sqe *sqe = next(IORING_OP_ACCEPT, listener, ACCEPT);
    sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    sqe->accept_flags = SOCK_CLOEXEC;
}

static void start_receive(int fd) {
    struct io_uring_sqe *sqe = next(IORING_OP_RECV, fd, RECEIVE);
    sqe->ioprio = IORING_RECV_MULTISHOT;
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
}

static void give_buffer(unsigned id) {
    struct io_uring_buf *buffer = &buffers->bufs[buffer_tail++ & (BUFFERS - 1)];
    buffer->addr = (unsigned long)(memory + (size_t)id * BUFFER_LEN);
    buffer->len = BUFFER_LEN;
    buffer->bid = id;
    __atomic_store_n(&buffers->tail, (unsigned short)buffer_tail, __ATOMIC_RELEASE);
}

static void set_up(void) {
    struct io_uring_params p = {.cq_entries = COMPLETIONS};
    p.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    ring = syscall(SYS_io_uring_setup, ENTRIES, &p);
    if (ring < 0) fail("io_uring_setup");
    size_t len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t sq_len = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    if (sq_len > len) len = sq_len;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    char *base = mmap(NULL, len, prot, flags, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, p.sq_entries * sizeof *sqes, prot, flags, ring, IORING_OFF_SQES);
    if (base == MAP_FAILED || sqes == MAP_FAILED) fail("mmap");
    sq_head = (void *)(base + p.sq_off.head);
    sq_tail = (void *)(base + p.sq_off.tail);
    sq_mask = (void *)(base + p.sq_off.ring_mask);
    cq_head = (void *)(base + p.cq_off.head);
    cq_tail = (void *)(base + p.cq_off.tail);
    cq_mask = (void *)(base + p.cq_off.ring_mask);
    cqes = (void *)(base + p.cq_off.cqes);
    unsigned *array = (void *)(base + p.sq_off.array);
    for (unsigned i = 0; i < p.sq_entries; i++) array[i] = i;
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    buffers = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), prot, anonymous, -1, 0);
    memory = mmap(NULL, (size_t)BUFFERS * BUFFER_LEN, prot, anonymous, -1, 0);
    if (buffers == MAP_FAILED || memory == MAP_FAILED) fail("mmap");
    struct io_uring_buf_reg reg = {.ring_entries = BUFFERS, .bgid = GROUP};
    reg.ring_addr = (unsigned long)buffers;
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1)) fail("register");
    for (unsigned i = 0; i < BUFFERS; i++) give_buffer(i);
}

static void complete(const struct io_uring_cqe *cqe) {
    int fd = (int)(unsigned)cqe->user_data, more = cqe->flags & IORING_CQE_F_MORE;
    switch (cqe->user_data >> 32) {
    case ACCEPT:
        if (cqe->res >= 0) start_receive(cqe->res);
        if (!more) start_accept();
        break;
    case RECEIVE:
        if (cqe->flags & IORING_CQE_F_BUFFER) give_buffer(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
        if (cqe->res > 0) {
            struct io_uring_sqe *sqe = next(IORING_OP_SEND, fd, SEND);
            sqe->addr = (unsigned long)response;
            sqe->len = response_len;
            sqe->msg_flags = MSG_NOSIGNAL;
            // Successful sends post no completion: only the receive does, one per request.
            if (!closes) sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
            if (!more) start_receive(fd);
        } else if (cqe->res == -ENOBUFS) {
            start_receive(fd);
        } else {
            next(IORING_OP_CLOSE, fd, CLOSE)->flags = IOSQE_CQE_SKIP_SUCCESS;
        }
        break;
    case SEND:
        // The peer sees the end at once; the receive then completes, and its completion closes the
        // socket.
        if (closes) shutdown(fd, SHUT_RDWR);
        break;
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (strcmp(argv[1], "probe") == 0) {
        set_up();
        return 0;
    }
    closes = argc > 2 && strcmp(argv[2], "close") == 0;
    if (closes) response = closing, response_len = sizeof closing - 1;
    signal(SIGPIPE, SIG_IGN);
    int one = 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) fail("listen");
    set_up();
    start_accept();
    for (;;) {
        enter(1);
        unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
        while (head != tail) {
            complete(&cqes[head & *cq_mask]);
            head++;
        }
        __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    }
}
