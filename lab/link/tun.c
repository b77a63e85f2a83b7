// Opens a TUN device in its network namespace and becomes another program, which has the device as
// one of its descriptors. The device is gone with the last process that has it.
//
// usage: tun NAME DESCRIPTOR PROGRAM ARGUMENT...
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int fail(const char *what) {
    perror(what);
    return 1;
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: tun NAME DESCRIPTOR PROGRAM ARGUMENT...\n");
        return 2;
    }
    struct ifreq request;
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", arguments[1]);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (device < 0)
        return fail("/dev/net/tun");
    if (ioctl(device, TUNSETIFF, &request) < 0)
        return fail("TUNSETIFF");
    int wanted = atoi(arguments[2]);
    if (device != wanted) {
        if (dup2(device, wanted) < 0)
            return fail("dup2");
        close(device);
    }
    execvp(arguments[3], arguments + 3);
    return fail(arguments[3]);
}
