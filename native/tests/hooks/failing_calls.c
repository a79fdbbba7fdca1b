/*
 * Makes one call fail, for scripts/check_faults.py: the n-th allocation, open, read, write, ... of the library
 * under test. Load it with LD_PRELOAD, on Linux with glibc.
 *
 * It counts the calls from the library's own code and from the llama.cpp and libstdc++ linked into it, and the
 * calls that libc makes for it, such as fopen's calls of malloc. Other calls of the process are not affected. The
 * stack of the failed call, and the stack where the process died, are written to memory shared with the parent
 * process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define HOOK __attribute__((visibility("default")))

enum kind { NONE, ALLOCATION, OPEN, READ, WRITE, SYNC, RENAME, CLOSE, SEEK, STATUS, MAP, THREAD };

enum { MOST_FRAMES = 64, ALTERNATE_STACK = 1 << 16 };

/* The layout that scripts/faults/preloaded.py reads. */
typedef struct {
    int32_t n_calls;  /* calls of the armed kind since it was armed */
    int32_t n_failed; /* number of failed calls */
    int32_t signal;   /* the signal that ended the process, or 0 */
    int32_t n_failed_frames, n_died_frames;
    int32_t unused;
    void * failed_at[MOST_FRAMES]; /* stack of the first failed call, innermost frame first */
    void * died_at[MOST_FRAMES];
} report;

typedef struct {
    uintptr_t begin, end;
} range;

static report no_report;
static report * told = &no_report;
static range library, libc;
static atomic_int armed_kind, n_calls;
static int fails_at, fails_on;
static __thread int is_inside; /* calls from this file are not counted */

/* ---- Functions for scripts/faults/preloaded.py ---------------------------------------------------- */

static int find_ranges(struct dl_phdr_info * info, size_t size, void * name) {
    (void)size;
    range found = {UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) * header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD) {
            const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
            found.begin = begin < found.begin ? begin : found.begin;
            found.end = begin + header->p_memsz > found.end ? begin + header->p_memsz : found.end;
        }
    }
    const char * file = strrchr(info->dlpi_name, '/');
    if (strcmp(info->dlpi_name, name) == 0) {
        library = found;
    } else if (file != NULL && strncmp(file, "/libc.so", 8) == 0) {
        libc = found;
    }
    return 0;
}

static void died(int number) {
    is_inside = 1;
    told->signal = number;
    told->n_died_frames = backtrace(told->died_at, MOST_FRAMES);
    signal(number, SIG_DFL);
    raise(number);
}

/* Sets the library whose calls are counted, by the path it was loaded from, and where to report them. Returns the
 * address of the library, or NULL if no library was loaded from that path. */
HOOK void * eliza_faults_watch(const char * path, report * where) {
    static char stack[ALTERNATE_STACK];
    void * frames[MOST_FRAMES];
    backtrace(frames, MOST_FRAMES); /* the first call of backtrace() loads a library */
    dl_iterate_phdr(find_ranges, (void *)(uintptr_t)path);
    told = where;
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = died, .sa_flags = SA_ONSTACK};
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) sigaction(signals[i], &action, NULL);
    return (void *)library.begin;
}

/* Makes the n-th following call of a kind fail, and with `lasting` all later ones too. n = 0 only counts calls. */
HOOK void eliza_faults_arm(int kind, int n, int lasting) {
    atomic_store(&n_calls, 0);
    told->n_calls = told->n_failed = 0;
    fails_at = n;
    fails_on = lasting;
    atomic_store(&armed_kind, kind);
}

HOOK void eliza_faults_disarm(void) {
    atomic_store(&armed_kind, NONE);
    told->n_calls = atomic_load(&n_calls);
}

/* ---- Deciding whether a call fails ------------------------------------------------------------------ */

static int is_in(range place, const void * address) {
    return (uintptr_t)address >= place.begin && (uintptr_t)address < place.end;
}

static int is_for_library(const void * caller) {
    if (is_in(library, caller)) return 1;
    if (!is_in(libc, caller)) return 0;
    void * frames[16];
    const int n = backtrace(frames, 16);
    for (int i = 0; i < n; ++i) {
        if (is_in(library, frames[i])) return 1;
    }
    return 0;
}

static int fails(enum kind kind, const void * caller) {
    if (atomic_load_explicit(&armed_kind, memory_order_relaxed) != (int)kind || is_inside) return 0;
    is_inside = 1;
    int is_failing = 0;
    if (is_for_library(caller)) {
        const int n = atomic_fetch_add(&n_calls, 1) + 1;
        is_failing = fails_at > 0 && (n == fails_at || (fails_on && n > fails_at));
        if (is_failing && told->n_failed++ == 0) told->n_failed_frames = backtrace(told->failed_at, MOST_FRAMES);
    }
    is_inside = 0;
    return is_failing;
}

#define FAILS(kind) fails(kind, __builtin_return_address(0))

/* The original function that the function of this name replaces. */
#define REAL(name) ((__typeof__(name) *)real(#name))

static void * real(const char * name) {
    const int was_inside = is_inside;
    is_inside = 1;
    void * found = dlsym(RTLD_NEXT, name);
    is_inside = was_inside;
    return found;
}

static int with_errno(int number) {
    errno = number;
    return -1;
}

static void * no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

/* Not looked up with dlsym, which itself allocates. */
void * __libc_malloc(size_t size);
void * __libc_calloc(size_t count, size_t size);
void * __libc_realloc(void * memory, size_t size);
void * __libc_memalign(size_t alignment, size_t size);

HOOK void * malloc(size_t size) { return FAILS(ALLOCATION) ? no_memory() : __libc_malloc(size); }
HOOK void * calloc(size_t count, size_t size) { return FAILS(ALLOCATION) ? no_memory() : __libc_calloc(count, size); }
HOOK void * realloc(void * memory, size_t size) {
    return FAILS(ALLOCATION) ? no_memory() : __libc_realloc(memory, size);
}
HOOK void * aligned_alloc(size_t alignment, size_t size) {
    return FAILS(ALLOCATION) ? no_memory() : __libc_memalign(alignment, size);
}
HOOK int posix_memalign(void ** out, size_t alignment, size_t size) {
    void * memory = FAILS(ALLOCATION) ? NULL : __libc_memalign(alignment, size);
    if (memory == NULL) return ENOMEM;
    *out = memory;
    return 0;
}
HOOK void * mmap(void * address, size_t size, int protection, int flags, int fd, off_t offset) {
    if (FAILS(MAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return REAL(mmap)(address, size, protection, flags, fd, offset);
}

/* ---- Files ------------------------------------------------------------------------------------------ */

#define MODE_OF(flags)                                      \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode = va_arg(rest, mode_t);                        \
        va_end(rest);                                       \
    }

HOOK int open(const char * path, int flags, ...) {
    MODE_OF(flags)
    return FAILS(OPEN) ? with_errno(EMFILE) : REAL(open)(path, flags, mode);
}
HOOK int openat(int folder, const char * path, int flags, ...) {
    MODE_OF(flags)
    return FAILS(OPEN) ? with_errno(EMFILE) : REAL(openat)(folder, path, flags, mode);
}
HOOK FILE * fopen(const char * path, const char * how) {
    if (FAILS(OPEN)) {
        errno = EMFILE;
        return NULL;
    }
    return REAL(fopen)(path, how);
}
HOOK FILE * fopen64(const char * path, const char * how) {
    if (FAILS(OPEN)) {
        errno = EMFILE;
        return NULL;
    }
    return REAL(fopen64)(path, how);
}

HOOK ssize_t read(int fd, void * out, size_t size) { return FAILS(READ) ? with_errno(EIO) : REAL(read)(fd, out, size); }
HOOK size_t fread(void * out, size_t size, size_t count, FILE * file) {
    if (FAILS(READ)) {
        errno = EIO;
        return 0;
    }
    return REAL(fread)(out, size, count, file);
}

HOOK ssize_t write(int fd, const void * data, size_t size) {
    return FAILS(WRITE) ? with_errno(ENOSPC) : REAL(write)(fd, data, size);
}
HOOK ssize_t writev(int fd, const struct iovec * parts, int count) {
    return FAILS(WRITE) ? with_errno(ENOSPC) : REAL(writev)(fd, parts, count);
}
HOOK ssize_t pwrite(int fd, const void * data, size_t size, off_t offset) {
    return FAILS(WRITE) ? with_errno(ENOSPC) : REAL(pwrite)(fd, data, size, offset);
}
/* A full disk accepts a part of the data. */
HOOK size_t fwrite(const void * data, size_t size, size_t count, FILE * file) {
    if (FAILS(WRITE)) {
        const size_t written = REAL(fwrite)(data, size, count / 2, file);
        errno = ENOSPC;
        return written;
    }
    return REAL(fwrite)(data, size, count, file);
}
HOOK int fflush(FILE * file) { return FAILS(WRITE) ? with_errno(ENOSPC) : REAL(fflush)(file); }
HOOK int ftruncate(int fd, off_t size) { return FAILS(WRITE) ? with_errno(ENOSPC) : REAL(ftruncate)(fd, size); }

HOOK int fsync(int fd) { return FAILS(SYNC) ? with_errno(EIO) : REAL(fsync)(fd); }
HOOK int fdatasync(int fd) { return FAILS(SYNC) ? with_errno(EIO) : REAL(fdatasync)(fd); }

HOOK int rename(const char * from, const char * to) {
    return FAILS(RENAME) ? with_errno(EACCES) : REAL(rename)(from, to);
}

/* The file is closed nevertheless, as with close() itself. */
HOOK int close(int fd) {
    const int is_failing = FAILS(CLOSE);
    const int result = REAL(close)(fd);
    return is_failing ? with_errno(EIO) : result;
}
HOOK int fclose(FILE * file) {
    const int is_failing = FAILS(CLOSE);
    const int result = REAL(fclose)(file);
    return is_failing ? with_errno(EIO) : result;
}

HOOK off_t lseek(int fd, off_t offset, int from) {
    return FAILS(SEEK) ? with_errno(EIO) : REAL(lseek)(fd, offset, from);
}
HOOK int fseeko(FILE * file, off_t offset, int from) {
    return FAILS(SEEK) ? with_errno(EIO) : REAL(fseeko)(file, offset, from);
}
HOOK int fseeko64(FILE * file, off64_t offset, int from) {
    return FAILS(SEEK) ? with_errno(EIO) : REAL(fseeko64)(file, offset, from);
}
HOOK off_t ftello(FILE * file) { return FAILS(SEEK) ? with_errno(EIO) : REAL(ftello)(file); }
HOOK off64_t ftello64(FILE * file) { return FAILS(SEEK) ? with_errno(EIO) : REAL(ftello64)(file); }

HOOK int stat(const char * path, struct stat * out) { return FAILS(STATUS) ? with_errno(EIO) : REAL(stat)(path, out); }
HOOK int fstat(int fd, struct stat * out) { return FAILS(STATUS) ? with_errno(EIO) : REAL(fstat)(fd, out); }
HOOK int fstat64(int fd, struct stat64 * out) { return FAILS(STATUS) ? with_errno(EIO) : REAL(fstat64)(fd, out); }

/* ---- Threads ---------------------------------------------------------------------------------------- */

HOOK int pthread_create(pthread_t * out, const pthread_attr_t * attributes, void * (*body)(void *), void * data) {
    return FAILS(THREAD) ? EAGAIN : REAL(pthread_create)(out, attributes, body, data);
}
