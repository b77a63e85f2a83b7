// Answers every request head with one constant response over epoll, without parsing.
//
// usage: constant_epoll PORT [close]
//
// It measures the kernel's cost when a server does nothing: no server with the same system calls
// can be cheaper. With "close" it closes each connection after its response.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD                                                                                       \
    "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"                    \
    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n"

static const char kept[] = HEAD "\r\nHello, World!";
static const char closing[] = HEAD "Connection: close\r\n\r\nHello, World!";
static const char *response = kept;
static size_t response_len = sizeof kept - 1;

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int closes = argc > 2 && strcmp(argv[2], "close") == 0;
    if (closes) response = closing, response_len = sizeof closing - 1;
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); // inherited by accept
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
            int fd = events[i].data.fd;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = fd};
                    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
                }
                continue;
            }
            ssize_t got = recv(fd, request, sizeof request, 0);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) {
                close(fd);
                continue;
            }
            if (send(fd, response, response_len, 0) < 0 || closes) close(fd);
        }
    }
}
