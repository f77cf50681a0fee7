/* base/errors.c: names and texts of error codes, in one table; and what a small program does about
   an error. Everything here but weft_must may be called in a signal handler: it reads constants. */
#include <weft/base.h>

#include "base/base.h"

struct error_text {
    int code; /* negative */
    const char *name;
    const char *text;
};

#define SYSTEM(code, text)                                                                         \
    { -(code), #code, text }

/* Where two names stand for one number the table has the usual one. The names that only some systems
   have are last and each on its own condition. */
static const struct error_text errors[] = {
    {WEFT_EOF, "WEFT_EOF", "end of the stream"},
    {WEFT_ENORUNTIME, "WEFT_ENORUNTIME", "the caller belongs to no runtime"},
    {WEFT_ESTOPPING, "WEFT_ESTOPPING", "the runtime is being stopped"},
    {WEFT_EPEERDEAD, "WEFT_EPEERDEAD", "the peer has stopped answering"},
    {WEFT_EAI_AGAIN, "EAI_AGAIN", "the name could not be looked up for now"},
    {WEFT_EAI_FAIL, "EAI_FAIL", "the name could not be looked up"},
    {WEFT_EAI_FAMILY, "EAI_FAMILY", "look-ups do not know this address family"},
    {WEFT_EAI_MEMORY, "EAI_MEMORY", "no memory for the look-up"},
    {WEFT_EAI_NODATA, "EAI_NODATA", "the name has no address"},
    {WEFT_EAI_NONAME, "EAI_NONAME", "no such host or service"},
    {WEFT_EAI_SERVICE, "EAI_SERVICE", "no such service for this kind of socket"},

    SYSTEM(EPERM, "not permitted"),
    SYSTEM(ENOENT, "no such file"),
    SYSTEM(ESRCH, "no such process"),
    SYSTEM(EINTR, "interrupted by a signal"),
    SYSTEM(EIO, "input or output failed"),
    SYSTEM(ENXIO, "no such device or address"),
    SYSTEM(E2BIG, "arguments too long"),
    SYSTEM(ENOEXEC, "not an executable file"),
    SYSTEM(EBADF, "not open, or closed already"),
    SYSTEM(ECHILD, "no child processes"),
    SYSTEM(EAGAIN, "not now: it would have to wait, or a limit is reached"),
    SYSTEM(ENOMEM, "out of memory"),
    SYSTEM(EACCES, "access denied"),
    SYSTEM(EFAULT, "bad memory address"),
    SYSTEM(EBUSY, "in use"),
    SYSTEM(EEXIST, "exists already"),
    SYSTEM(EXDEV, "on another file system"),
    SYSTEM(ENODEV, "no such device"),
    SYSTEM(ENOTDIR, "not a directory"),
    SYSTEM(EISDIR, "is a directory"),
    SYSTEM(EINVAL, "invalid argument"),
    SYSTEM(ENFILE, "too many open files in the system"),
    SYSTEM(EMFILE, "too many open files in the process"),
    SYSTEM(ENOTTY, "the device does not know this request"),
    SYSTEM(ETXTBSY, "the program file is being run or written"),
    SYSTEM(EFBIG, "file too large"),
    SYSTEM(ENOSPC, "no space left"),
    SYSTEM(ESPIPE, "cannot seek there"),
    SYSTEM(EROFS, "the file system is read-only"),
    SYSTEM(EMLINK, "too many links"),
    SYSTEM(EPIPE, "the other end is closed"),
    SYSTEM(EDOM, "argument outside of the function's domain"),
    SYSTEM(ERANGE, "result out of range"),
    SYSTEM(EDEADLK, "it would wait for itself"),
    SYSTEM(ENAMETOOLONG, "name too long"),
    SYSTEM(ENOLCK, "no locks left"),
    SYSTEM(ENOSYS, "not implemented by this system"),
    SYSTEM(ENOTEMPTY, "directory not empty"),
    SYSTEM(ELOOP, "too many symbolic links"),
    SYSTEM(ENOMSG, "no message of that type"),
    SYSTEM(EIDRM, "the object has been removed"),
    SYSTEM(EPROTO, "protocol error"),
    SYSTEM(EBADMSG, "not a valid message"),
    SYSTEM(EOVERFLOW, "value too large for its type"),
    SYSTEM(EILSEQ, "invalid byte sequence"),
    SYSTEM(ENOTSOCK, "not a socket"),
    SYSTEM(EDESTADDRREQ, "an address to send to is needed"),
    SYSTEM(EMSGSIZE, "message too long"),
    SYSTEM(EPROTOTYPE, "wrong protocol for this kind of socket"),
    SYSTEM(ENOPROTOOPT, "no such protocol option"),
    SYSTEM(EPROTONOSUPPORT, "protocol not supported"),
    SYSTEM(EOPNOTSUPP, "operation not supported"),
    SYSTEM(EAFNOSUPPORT, "address family not supported"),
    SYSTEM(EADDRINUSE, "address in use"),
    SYSTEM(EADDRNOTAVAIL, "no such address on this machine"),
    SYSTEM(ENETDOWN, "the network is down"),
    SYSTEM(ENETUNREACH, "no route to the network"),
    SYSTEM(ENETRESET, "connection dropped by a network reset"),
    SYSTEM(ECONNABORTED, "connection aborted"),
    SYSTEM(ECONNRESET, "connection reset by the peer"),
    SYSTEM(ENOBUFS, "no buffer space left"),
    SYSTEM(EISCONN, "connected already"),
    SYSTEM(ENOTCONN, "not connected"),
    SYSTEM(ETIMEDOUT, "timed out"),
    SYSTEM(ECONNREFUSED, "connection refused"),
    SYSTEM(EHOSTUNREACH, "no route to the host"),
    SYSTEM(EALREADY, "already under way"),
    SYSTEM(EINPROGRESS, "now under way"),
    SYSTEM(ESTALE, "the remote file is gone"),
    SYSTEM(EDQUOT, "disk quota exceeded"),
    SYSTEM(ECANCELED, "cancelled"),
    SYSTEM(EOWNERDEAD, "the lock's owner died"),
    SYSTEM(ENOTRECOVERABLE, "the lock's state cannot be repaired"),
    SYSTEM(ENOLINK, "the link has been cut"),
    SYSTEM(EMULTIHOP, "more than one hop attempted"),
#if defined(ENOTSUP) && ENOTSUP != EOPNOTSUPP
    SYSTEM(ENOTSUP, "not supported"),
#endif
#if defined(EWOULDBLOCK) && EWOULDBLOCK != EAGAIN
    SYSTEM(EWOULDBLOCK, "it would have to wait"),
#endif
#if defined(EDEADLOCK) && EDEADLOCK != EDEADLK
    SYSTEM(EDEADLOCK, "a file lock would wait for itself"),
#endif
#ifdef ENOTBLK
    SYSTEM(ENOTBLK, "not a block device"),
#endif
#ifdef ENOSTR
    SYSTEM(ENOSTR, "not a STREAM"),
#endif
#ifdef ENODATA
    SYSTEM(ENODATA, "no such data or attribute"),
#endif
#ifdef ETIME
    SYSTEM(ETIME, "the timer has run out"),
#endif
#ifdef ENOSR
    SYSTEM(ENOSR, "no STREAM resources left"),
#endif
#ifdef EREMOTE
    SYSTEM(EREMOTE, "the file is remote"),
#endif
#ifdef EPFNOSUPPORT
    SYSTEM(EPFNOSUPPORT, "protocol family not supported"),
#endif
#ifdef ESOCKTNOSUPPORT
    SYSTEM(ESOCKTNOSUPPORT, "kind of socket not supported"),
#endif
#ifdef ESHUTDOWN
    SYSTEM(ESHUTDOWN, "shut down for sending"),
#endif
#ifdef ETOOMANYREFS
    SYSTEM(ETOOMANYREFS, "too many descriptors in flight"),
#endif
#ifdef EHOSTDOWN
    SYSTEM(EHOSTDOWN, "the host is down"),
#endif
#ifdef EUSERS
    SYSTEM(EUSERS, "too many users"),
#endif
#ifdef __linux__
    SYSTEM(ECHRNG, "channel number out of range"),
    SYSTEM(EL2NSYNC, "level 2 out of step"),
    SYSTEM(EL3HLT, "level 3 has halted"),
    SYSTEM(EL3RST, "level 3 was reset"),
    SYSTEM(ELNRNG, "link number out of range"),
    SYSTEM(EUNATCH, "no protocol driver attached"),
    SYSTEM(ENOCSI, "no control structure there"),
    SYSTEM(EL2HLT, "level 2 has halted"),
    SYSTEM(EBADE, "bad exchange"),
    SYSTEM(EBADR, "bad request descriptor"),
    SYSTEM(EXFULL, "the exchange is full"),
    SYSTEM(ENOANO, "no anode"),
    SYSTEM(EBADRQC, "bad request code"),
    SYSTEM(EBADSLT, "bad slot"),
    SYSTEM(EBFONT, "bad font file"),
    SYSTEM(ENONET, "the machine has no network"),
    SYSTEM(ENOPKG, "the package is missing"),
    SYSTEM(EADV, "cannot be advertised"),
    SYSTEM(ESRMNT, "still mounted by others"),
    SYSTEM(ECOMM, "sending failed"),
    SYSTEM(EDOTDOT, "wrong remote file server"),
    SYSTEM(ENOTUNIQ, "the name is not unique on the network"),
    SYSTEM(EBADFD, "the descriptor is in a bad state"),
    SYSTEM(EREMCHG, "the remote address has changed"),
    SYSTEM(ELIBACC, "a shared library cannot be read"),
    SYSTEM(ELIBBAD, "a shared library is damaged"),
    SYSTEM(ELIBSCN, "a library section is damaged"),
    SYSTEM(ELIBMAX, "too many shared libraries"),
    SYSTEM(ELIBEXEC, "a shared library is not a program"),
    SYSTEM(ERESTART, "the call should be made again"),
    SYSTEM(ESTRPIPE, "the pipe of streams failed"),
    SYSTEM(EUCLEAN, "the structure needs cleaning"),
    SYSTEM(ENOTNAM, "not a named file of that kind"),
    SYSTEM(ENAVAIL, "no semaphores of that kind"),
    SYSTEM(EISNAM, "is a named file of that kind"),
    SYSTEM(EREMOTEIO, "the remote device failed"),
    SYSTEM(ENOMEDIUM, "no medium in the drive"),
    SYSTEM(EMEDIUMTYPE, "wrong kind of medium"),
    SYSTEM(ENOKEY, "the key is missing"),
    SYSTEM(EKEYEXPIRED, "the key has expired"),
    SYSTEM(EKEYREVOKED, "the key has been revoked"),
    SYSTEM(EKEYREJECTED, "the key was refused"),
    SYSTEM(ERFKILL, "the radio is switched off"),
    SYSTEM(EHWPOISON, "the memory page is defective"),
#endif
};

static const struct error_text *find(int err) {
    for (size_t i = 0; i < WEFT_COUNT(errors); i++) {
        if (errors[i].code == err) return &errors[i];
    }
    return NULL;
}

const char *weft_strerror(int err) {
    if (err == 0) return "no error";
    const struct error_text *e = find(err);
    return e ? e->text : "unknown error";
}

const char *weft_errname(int err) {
    const struct error_text *e = find(err);
    return e ? e->name : "E?";
}

int weft_must(int result, const char *what) {
    if (result < 0) {
        weft__fatal("%s: %s (%s, %d)", what, weft_strerror(result), weft_errname(result), result);
    }
    return result;
}

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *weft_version(void) {
    return VERSION_TEXT(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
}
