/* Calls of the C library that fail on purpose; loaded with LD_PRELOAD by calls.py, which says what fails by ctypes.

Counts calls that open, read, write, flush, map or rename a file below one folder, in this process and its forks, and
lets one of them fail, or all from there on. Other files, imports among them, are left alone. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_READ, OPEN_WRITE, READ, WRITE, FSYNC, RENAME, MMAP, MKDIR, LIST };
enum { SHORT = -1 }; /* in place of an error: half of the bytes */

#define MOST_CALLS 20000
#define LONGEST_PATH 300

struct shared {
    char folder[4096];
    int is_armed, error, kinds, is_lasting, is_read_only, lock_error;
    long fail_at, n_calls, jump_s, n_clock;
    struct { int kind; char path[LONGEST_PATH]; } calls[MOST_CALLS];
};
static struct shared *shared;

__attribute__((constructor)) static void start(void) {
    /* shared with forks, so that workers count on, and the parent reads what they did */
    void *place = (void *)syscall(SYS_mmap, 0, sizeof(struct shared), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = place == MAP_FAILED ? NULL : place;
}

/* -- what calls.py calls ------------------------------------------------------------------------------------------ */

void faults_arm(const char *folder, long fail_at, int error, int kinds, int is_lasting) {
    snprintf(shared->folder, sizeof shared->folder, "%s", folder);
    shared->fail_at = fail_at, shared->error = error, shared->kinds = kinds, shared->is_lasting = is_lasting;
    shared->n_calls = 0;
    shared->is_armed = 1;
}
void faults_disarm(void) {
    shared->is_armed = shared->is_read_only = shared->lock_error = 0;
    shared->jump_s = 0;
}
void faults_read_only(const char *folder) {
    snprintf(shared->folder, sizeof shared->folder, "%s", folder);
    shared->is_read_only = 1;
}
void faults_locks(int error) { shared->lock_error = error; }
void faults_clock(long jump_s) { shared->jump_s = jump_s; }
long faults_count(void) { return shared->n_calls; }
int faults_kind(long number) { return shared->calls[number % MOST_CALLS].kind; }
const char *faults_path(long number) { return shared->calls[number % MOST_CALLS].path; }

/* -- which calls count -------------------------------------------------------------------------------------------- */

static int is_below(const char *path) {
    size_t length = strlen(shared->folder);
    return length && !strncmp(path, shared->folder, length) && (path[length] == '/' || !path[length]);
}

static int path_of_descriptor(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, 4095);
    path[n < 0 ? 0 : n] = 0;
    return n > 0;
}

static int full_path(int folder, const char *name, char *path) {
    if (!name) return 0;
    if (name[0] == '/') {
        snprintf(path, 8192, "%s", name);
        return 1;
    }
    if (folder == AT_FDCWD ? !getcwd(path, 4096) : !path_of_descriptor(folder, path)) return 0;
    size_t length = strlen(path);
    while (!strncmp(name, "./", 2)) name += 2;
    snprintf(path + length, 8192 - length, strcmp(name, ".") ? "/%s" : "", name);
    return 1;
}

/* Count a call; returns the error that it ends with, SHORT, or 0. */
static int counted(int kind, const char *path) {
    long number = __atomic_fetch_add(&shared->n_calls, 1, __ATOMIC_SEQ_CST);
    if (number < MOST_CALLS) {
        shared->calls[number].kind = kind;
        snprintf(shared->calls[number].path, LONGEST_PATH, "%s", path + strlen(shared->folder));
    }
    int fails = number == shared->fail_at ||
                (shared->is_lasting && shared->fail_at >= 0 && number > shared->fail_at && shared->kinds >> kind & 1);
    return fails ? shared->error : 0;
}

static int on_path(int kind, int folder, const char *name) {
    char path[8192];
    if (!shared || !(shared->is_armed | shared->is_read_only)) return 0;
    int saved = errno, is_counted = full_path(folder, name, path) && is_below(path);
    errno = saved;
    if (!is_counted) return 0;
    if (shared->is_read_only) return kind == OPEN_READ || kind == LIST ? 0 : EROFS;
    return kind < 0 ? 0 : counted(kind, path);
}

static int on_descriptor(int kind, int descriptor) {
    char path[4096];
    if (!shared || !shared->is_armed) return 0;
    int saved = errno, is_counted = path_of_descriptor(descriptor, path) && is_below(path);
    errno = saved;
    return is_counted ? counted(kind, path) : 0;
}

#define REAL(name)                                          \
    ({                                                      \
        static __typeof__(&name) real_;                     \
        if (!real_) real_ = dlsym(RTLD_NEXT, #name);        \
        real_;                                              \
    })

/* `fault` is what a call ends with; SHORT is for those that can be short alone */
#define FAIL(fault, value)      \
    do {                        \
        int code_ = (fault);    \
        if (code_ > 0) {        \
            errno = code_;      \
            return value;       \
        }                       \
    } while (0)
#define HALVE(fault, size)                            \
    do {                                              \
        int code_ = (fault);                          \
        if (code_ == SHORT && size > 1) size /= 2;    \
        if (code_ > 0) {                              \
            errno = code_;                            \
            return -1;                                \
        }                                             \
    } while (0)

/* -- the calls ---------------------------------------------------------------------------------------------------- */

static int kind_of(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC) ? OPEN_WRITE : OPEN_READ;
}
#define MODE                                               \
    mode_t mode = 0;                                       \
    if (flags & (O_CREAT | O_TMPFILE)) {                   \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode = va_arg(rest, int);                          \
        va_end(rest);                                      \
    }
#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        MODE FAIL(on_path(kind_of(flags), AT_FDCWD, path), -1);             \
        return REAL(name)(path, flags, mode);                               \
    }
#define OPENAT(name)                                                        \
    int name(int folder, const char *path, int flags, ...) {                \
        MODE FAIL(on_path(kind_of(flags), folder, path), -1);               \
        return REAL(name)(folder, path, flags, mode);                       \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                      \
    FILE *name(const char *path, const char *mode) {                                                     \
        FAIL(on_path(mode[0] == 'r' && !strchr(mode, '+') ? OPEN_READ : OPEN_WRITE, AT_FDCWD, path), NULL); \
        return REAL(name)(path, mode);                                                                   \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
    FAIL(on_path(LIST, AT_FDCWD, path), NULL);
    return REAL(opendir)(path);
}

ssize_t read(int descriptor, void *bytes, size_t size) {
    HALVE(on_descriptor(READ, descriptor), size);
    return REAL(read)(descriptor, bytes, size);
}
#define PREAD(name, offset_type)                                                    \
    ssize_t name(int descriptor, void *bytes, size_t size, offset_type offset) {    \
        HALVE(on_descriptor(READ, descriptor), size);                               \
        return REAL(name)(descriptor, bytes, size, offset);                         \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)
ssize_t readv(int descriptor, const struct iovec *parts, int n) {
    FAIL(on_descriptor(READ, descriptor), -1);
    return REAL(readv)(descriptor, parts, n);
}
size_t fread(void *bytes, size_t size, size_t n, FILE *file) {
    if (shared && shared->is_armed) FAIL(on_descriptor(READ, fileno(file)), 0);
    return REAL(fread)(bytes, size, n, file);
}

ssize_t write(int descriptor, const void *bytes, size_t size) {
    HALVE(on_descriptor(WRITE, descriptor), size);
    return REAL(write)(descriptor, bytes, size);
}
#define PWRITE(name, offset_type)                                                        \
    ssize_t name(int descriptor, const void *bytes, size_t size, offset_type offset) {   \
        HALVE(on_descriptor(WRITE, descriptor), size);                                   \
        return REAL(name)(descriptor, bytes, size, offset);                              \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
ssize_t writev(int descriptor, const struct iovec *parts, int n) {
    FAIL(on_descriptor(WRITE, descriptor), -1);
    return REAL(writev)(descriptor, parts, n);
}
size_t fwrite(const void *bytes, size_t size, size_t n, FILE *file) {
    if (shared && shared->is_armed) FAIL(on_descriptor(WRITE, fileno(file)), 0);
    return REAL(fwrite)(bytes, size, n, file);
}
int fclose(FILE *file) {
    int fault = 0;
    /* what is in the buffer is written here */
    if (shared && shared->is_armed && __fwriting(file) && __fpending(file)) fault = on_descriptor(WRITE, fileno(file));
    if (fault <= 0) return REAL(fclose)(file);
    __fpurge(file);
    REAL(fclose)(file);
    errno = fault;
    return EOF;
}
int fflush(FILE *file) {
    if (file && shared && shared->is_armed && __fwriting(file) && __fpending(file)) {
        int fault = on_descriptor(WRITE, fileno(file));
        if (fault > 0) {
            __fpurge(file);
            errno = fault;
            return EOF;
        }
    }
    return REAL(fflush)(file);
}
ssize_t sendfile(int target, int source, off_t *offset, size_t size) {
    HALVE(on_descriptor(WRITE, target), size);
    return REAL(sendfile)(target, source, offset, size);
}
ssize_t sendfile64(int target, int source, off64_t *offset, size_t size) {
    HALVE(on_descriptor(WRITE, target), size);
    return REAL(sendfile64)(target, source, offset, size);
}
ssize_t copy_file_range(int source, off64_t *at, int target, off64_t *to, size_t size, unsigned flags) {
    HALVE(on_descriptor(WRITE, target), size);
    return REAL(copy_file_range)(source, at, target, to, size, flags);
}
int ftruncate(int descriptor, off_t size) {
    FAIL(on_descriptor(WRITE, descriptor), -1);
    return REAL(ftruncate)(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) {
    FAIL(on_descriptor(WRITE, descriptor), -1);
    return REAL(ftruncate64)(descriptor, size);
}
int fsync(int descriptor) {
    FAIL(on_descriptor(FSYNC, descriptor), -1);
    return REAL(fsync)(descriptor);
}
int fdatasync(int descriptor) {
    FAIL(on_descriptor(FSYNC, descriptor), -1);
    return REAL(fdatasync)(descriptor);
}

int rename(const char *from, const char *to) {
    FAIL(on_path(RENAME, AT_FDCWD, to), -1);
    return REAL(rename)(from, to);
}
int renameat(int folder, const char *from, int other, const char *to) {
    FAIL(on_path(RENAME, other, to), -1);
    return REAL(renameat)(folder, from, other, to);
}
int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    FAIL(on_path(RENAME, other, to), -1);
    return REAL(renameat2)(folder, from, other, to, flags);
}
int mkdir(const char *path, mode_t mode) {
    FAIL(on_path(MKDIR, AT_FDCWD, path), -1);
    return REAL(mkdir)(path, mode);
}

#define MAP(name, offset_type)                                                                            \
    void *name(void *place, size_t size, int protection, int flags, int descriptor, offset_type offset) { \
        if (descriptor >= 0 && shared && shared->is_armed) FAIL(on_descriptor(MMAP, descriptor), MAP_FAILED); \
        return (void *)syscall(SYS_mmap, place, size, protection, flags, descriptor, offset);             \
    }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

/* -- a read-only file system: what changes nothing that is counted above ------------------------------------------ */

#define CHANGES(declaration, folder, path, call) \
    int declaration {                            \
        FAIL(on_path(-1, folder, path), -1);     \
        return call;                             \
    }
CHANGES(unlink(const char *path), AT_FDCWD, path, REAL(unlink)(path))
CHANGES(rmdir(const char *path), AT_FDCWD, path, REAL(rmdir)(path))
CHANGES(unlinkat(int folder, const char *path, int flags), folder, path, REAL(unlinkat)(folder, path, flags))
CHANGES(chmod(const char *path, mode_t mode), AT_FDCWD, path, REAL(chmod)(path, mode))
CHANGES(utimensat(int folder, const char *path, const struct timespec times[2], int flags), folder, path,
        REAL(utimensat)(folder, path, times, flags))
int access(const char *path, int mode) {
    if (mode & W_OK) FAIL(on_path(-1, AT_FDCWD, path), -1);
    return REAL(access)(path, mode);
}

/* -- a file system without locks, and a clock that jumps ---------------------------------------------------------- */

int flock(int descriptor, int operation) {
    if (shared && shared->lock_error) {
        errno = shared->lock_error;
        return -1;
    }
    return REAL(flock)(descriptor, operation);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = REAL(clock_gettime)(clock, now);
    if (!code && clock == CLOCK_REALTIME && shared && shared->jump_s) /* forward and back in turn */
        now->tv_sec += __atomic_fetch_add(&shared->n_clock, 1, __ATOMIC_SEQ_CST) % 2 ? -shared->jump_s : shared->jump_s;
    return code;
}
