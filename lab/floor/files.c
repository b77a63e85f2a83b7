// Serves files that were opened beforehand, parsing only the path.
//
// usage: files PORT ROOT MEMORY_MAX < LIST
//
// LIST names one path per line, each starting with a slash. A body of up to MEMORY_MAX bytes is
// sent from memory in one call with its head; a larger one by sendfile(2) after its head. It
// measures the kernel's cost for real bodies: there is no cache, no rule, and no condition is
// checked.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONNECTIONS = 65536, SLICE = 1 << 20, TABLE = 1 << 16 };

struct file {
    char *path, *reply; // the reply is the head, and the body too where it is small
    size_t head_len, reply_len;
    off_t size;
    int fd;
};

struct connection {
    struct file *file; // NULL: idle
    off_t offset;
};

static struct file *table[TABLE];
static struct connection connections[CONNECTIONS];

static unsigned hash(const char *path, size_t len) {
    unsigned value = 2166136261u;
    for (size_t i = 0; i < len; i++) value = (value ^ (unsigned char)path[i]) * 16777619u;
    return value & (TABLE - 1);
}

static struct file *find(const char *path, size_t len) {
    for (unsigned at = hash(path, len); table[at]; at = (at + 1) & (TABLE - 1))
        if (strlen(table[at]->path) == len && memcmp(table[at]->path, path, len) == 0)
            return table[at];
    return NULL;
}

static void add(const char *root, const char *path, off_t memory_max) {
    char full[4096];
    snprintf(full, sizeof full, "%s%s", root, path);
    struct file *file = calloc(1, sizeof *file);
    struct stat stat;
    file->path = strdup(path);
    file->fd = open(full, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &stat)) {
        perror(full);
        exit(1);
    }
    file->size = stat.st_size;
    file->reply = malloc(512 + (file->size <= memory_max ? file->size : 0));
    file->head_len = file->reply_len = sprintf(
        file->reply,
        "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: %lld\r\n"
        "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n\r\n",
        (long long)file->size);
    if (file->size <= memory_max) {
        if (pread(file->fd, file->reply + file->head_len, file->size, 0) != file->size) exit(1);
        file->reply_len += file->size;
        close(file->fd);
    }
    unsigned at = hash(path, strlen(path));
    while (table[at]) at = (at + 1) & (TABLE - 1);
    table[at] = file;
}

// Sends more of the body; 0 when it is complete, 1 when the socket is full, -1 on an error.
static int go_on(int fd) {
    struct connection *c = &connections[fd];
    while (c->offset < c->file->size) {
        ssize_t sent = sendfile(fd, c->file->fd, &c->offset, SLICE);
        if (sent < 0) return errno == EAGAIN ? 1 : -1;
        if (sent == 0) return -1;
    }
    c->file = NULL;
    return 0;
}

static int answer(int fd, const char *request, ssize_t len) {
    const char *path = memchr(request, ' ', len);
    const char *end = path ? memchr(path + 1, ' ', request + len - path - 1) : NULL;
    struct file *file = end ? find(path + 1, end - path - 1) : NULL;
    if (!file) return -1;
    int whole = file->reply_len > file->head_len || file->size == 0;
    ssize_t sent = send(fd, file->reply, file->reply_len, whole ? 0 : MSG_MORE);
    if (sent != (ssize_t)file->reply_len) return -1;
    if (whole) return 0;
    connections[fd] = (struct connection){.file = file};
    return go_on(fd);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    char line[4096];
    for (int count = 0; fgets(line, sizeof line, stdin); count++) {
        if (count >= TABLE / 2) return 1;
        line[strcspn(line, "\n")] = 0;
        add(argv[2], line, atoll(argv[3]));
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) {
        perror("listen");
        return 1;
    }
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[512];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    static char request[16384];
    for (;;) {
        int count = epoll_wait(poll, events, 512, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd, failed = 0;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                    event.data.fd = fd;
                    if (fd >= CONNECTIONS || epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) close(fd);
                    else connections[fd].file = NULL;
                }
                continue;
            }
            if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) failed = 1;
            if (!failed && connections[fd].file) failed = go_on(fd) < 0;
            if (!failed && !connections[fd].file && (events[i].events & EPOLLIN)) {
                ssize_t got = recv(fd, request, sizeof request, 0);
                if (got > 0) failed = answer(fd, request, got) < 0;
                else failed = got == 0 || errno != EAGAIN;
            }
            if (failed) close(fd);
        }
    }
}
