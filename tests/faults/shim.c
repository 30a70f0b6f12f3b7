/* System calls that fail when a test says so, preloaded into a real server (LD_PRELOAD).
 *
 * The file named by ROCKMQ_FAULTS is read at every call. A line of it is `call action part number`:
 *     call    msync fsync write
 *     action  eio enospc, or hang (as long as the line is there, then as usual), or short (at most number bytes)
 *     part    what the path of the file must contain; - means any. A map has no path, so msync takes - only.
 * No file, no faults. fsync stands for fdatasync too, write for pwrite. fallocate can't be caught: the core calls the
 * kernel for it without libc. A disk that is really full is a small tmpfs in test_full_disk.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* 0 when the call may go on, with *size lowered if it is to be short; else -1 with errno set. */
static int fault(const char *call, int descriptor, size_t *size) {
    char text[1024], path[1024] = "", link[64];
    const char *control = getenv("ROCKMQ_FAULTS");
    int before = errno, file;
again:
    file = control ? (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        errno = before;
        return 0;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    if (descriptor >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t end = readlink(link, path, sizeof path - 1);
        path[end > 0 ? end : 0] = 0;
    }
    errno = before;
    for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char wanted[16], action[16], part[256];
        long number;
        if (sscanf(line, "%15s %15s %255s %ld", wanted, action, part, &number) != 4 || strcmp(wanted, call))
            continue;
        if (strcmp(part, "-") && !strstr(path, part))
            continue;
        if (!strcmp(action, "hang")) {
            usleep(10000);
            goto again;
        } else if (!strcmp(action, "short")) {
            if (size && *size > (size_t)number)
                *size = (size_t)number;
        } else {
            errno = strcmp(action, "eio") ? ENOSPC : EIO;
            return -1;
        }
    }
    return 0;
}

/* What libc does, as a variable of the same type. */
#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int msync(void *address, size_t length, int flags) {
    REAL(msync);
    return fault("msync", -1, NULL) ? -1 : real(address, length, flags);
}

int fsync(int descriptor) {
    REAL(fsync);
    return fault("fsync", descriptor, NULL) ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    REAL(fdatasync);
    return fault("fsync", descriptor, NULL) ? -1 : real(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    return fault("write", descriptor, &size) ? -1 : real(descriptor, data, size);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    return fault("write", descriptor, &size) ? -1 : real(descriptor, data, size, at);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    return fault("write", descriptor, &size) ? -1 : real(descriptor, data, size, at);
}
