/* net/addr.c: addresses as values, to and from text. Nothing is looked up but the number of an
   interface, and nothing is guessed: a text that is not exactly one of these is refused.

       127.0.0.1:80        four decimal numbers, without leading zeros
       [fe80::1%eth0]:80   the scope is an interface's name or number
       :80                 every address of this machine, of both kinds: [::]:80
       unix:/run/x.sock    a path, byte for byte
       @name               an abstract name; a zero byte in it is \0, a backslash is \\

   Every address that is made here reads back from its text as an equal one, except that of a Unix
   socket without a name: its text is "unix:", which says as much, and is refused.

   Texts come from users, addresses from peers. Neither can make anything here read or write outside
   of its bounds, and nothing too long is ever cut: the cut form would be another address. */
#define _GNU_SOURCE 1
#include <weft/net.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

enum {
    PATH_OFFSET = offsetof(struct sockaddr_un, sun_path),
    PATH_ROOM = sizeof(((struct sockaddr_un *)0)->sun_path), /* an abstract name may fill it... */
    PATH_MAX_BYTES = PATH_ROOM - 1,                          /* ...a path leaves room for its end */
    MAX_PORT = 65535,
    HOST_BYTES = INET6_ADDRSTRLEN + 1 + IF_NAMESIZE, /* an address, a %, a scope, a zero */
    /* Each byte of an abstract name may need two. */
    TEXT_BYTES = 2 * PATH_ROOM + 8
};

_Static_assert(sizeof(struct sockaddr_un) <= sizeof(((weft_addr *)0)->storage), "paths fit");

/* The parts of an address. Copied out and in, since the storage has no type of its own. */

static sa_family_t family_of(const weft_addr *a) {
    struct sockaddr sa;
    if (a->bytes < sizeof sa.sa_family || a->bytes > sizeof a->storage) return AF_UNSPEC;
    memcpy(&sa, a->storage, sizeof sa);
    return sa.sa_family;
}

static struct sockaddr_in ipv4_of(const weft_addr *a) {
    struct sockaddr_in in;
    memcpy(&in, a->storage, sizeof in);
    return in;
}

static struct sockaddr_in6 ipv6_of(const weft_addr *a) {
    struct sockaddr_in6 in6;
    memcpy(&in6, a->storage, sizeof in6);
    return in6;
}

/* How many bytes of path or name, 0: the socket has none. */
static size_t path_bytes(const weft_addr *a) {
    return a->bytes > PATH_OFFSET ? a->bytes - PATH_OFFSET : 0;
}

static void put(weft_addr *out, const void *sockaddr, size_t bytes) {
    *out = (weft_addr){.bytes = (uint32_t)bytes};
    memcpy(out->storage, sockaddr, bytes);
}

static void put_ipv4(weft_addr *out, struct in_addr host, in_port_t port) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = port, .sin_addr = host};
    put(out, &in, sizeof in);
}

static void put_ipv6(weft_addr *out, struct in6_addr host, uint32_t scope, in_port_t port) {
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = host, .sin6_scope_id = scope};
    put(out, &in6, sizeof in6);
}

/* From text. */

/* A decimal number that ends the text. */
static bool parse_number(const char *text, uint32_t max, uint32_t *out) {
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max) return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool parse_port(const char *text, in_port_t *out) {
    uint32_t port;
    if (!parse_number(text, MAX_PORT, &port)) return false;
    *out = htons((uint16_t)port);
    return true;
}

/* A name that is a number is the number. Scope 0 means no scope, and is not written. */
static bool parse_scope(const char *text, uint32_t *out) {
    if (parse_number(text, UINT32_MAX, out)) return *out != 0;
    if (strlen(text) >= IF_NAMESIZE) return false;
    *out = if_nametoindex(text);
    return *out != 0;
}

/* Copies what lies before `end` of text. False if that is too long. */
static bool copy_host(char *host, const char *text, const char *end) {
    size_t n = (size_t)(end - text);
    if (n >= HOST_BYTES) return false;
    memcpy(host, text, n);
    host[n] = 0;
    return true;
}

/* "[::1%lo]:80" */
static int parse_ipv6(weft_addr *out, const char *text) {
    char host[HOST_BYTES];
    struct in6_addr addr;
    uint32_t scope = 0;
    in_port_t port;
    const char *end = strchr(text, ']');
    if (!end || end[1] != ':' || !parse_port(end + 2, &port)) return -EINVAL;
    if (!copy_host(host, text + 1, end)) return -EINVAL;
    char *percent = strchr(host, '%');
    if (percent) {
        *percent = 0;
        if (!parse_scope(percent + 1, &scope)) return -EINVAL;
    }
    if (inet_pton(AF_INET6, host, &addr) != 1) return -EINVAL;
    put_ipv6(out, addr, scope, port);
    return 0;
}

/* "127.0.0.1:80" and ":80" */
static int parse_ipv4(weft_addr *out, const char *text) {
    char host[HOST_BYTES];
    struct in_addr addr;
    in_port_t port;
    const char *colon = strchr(text, ':');
    if (!colon || !parse_port(colon + 1, &port)) return -EINVAL;
    if (colon == text) {
        put_ipv6(out, in6addr_any, 0, port);
        return 0;
    }
    if (!copy_host(host, text, colon) || inet_pton(AF_INET, host, &addr) != 1) return -EINVAL;
    put_ipv4(out, addr, port);
    return 0;
}

/* "@name", where the @ stands for the zero that abstract names begin with. */
static int parse_abstract(weft_addr *out, const char *text) {
    char name[PATH_ROOM] = {0};
    size_t n = 1;
    for (text++; *text; text++) {
        char c = *text;
        if (c == '\\') {
            text++;
            if (*text != '0' && *text != '\\') return -EINVAL;
            c = *text == '0' ? 0 : '\\';
        }
        if (n == sizeof name) return -ENAMETOOLONG;
        name[n++] = c;
    }
    return weft_addr_unix(out, name, n);
}

int weft_addr_parse(weft_addr *out, const char *text) {
    if (!text) return -EINVAL;
    if (text[0] == '[') return parse_ipv6(out, text);
    if (text[0] == '@') return parse_abstract(out, text);
    if (strncmp(text, "unix:", 5) == 0) return weft_addr_unix(out, text + 5, strlen(text + 5));
    return parse_ipv4(out, text);
}

int weft_addr_unix(weft_addr *out, const void *path, size_t bytes) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (!path || bytes == 0) return -EINVAL;
    bool abstract = *(const char *)path == 0;
    if (bytes > (size_t)(abstract ? PATH_ROOM : PATH_MAX_BYTES)) return -ENAMETOOLONG;
    /* The system would take such a path only up to the zero. */
    if (!abstract && memchr(path, 0, bytes)) return -EINVAL;
    memcpy(un.sun_path, path, bytes);
    /* An abstract name is as long as its address says, a path ends at a zero that counts. */
    put(out, &un, PATH_OFFSET + bytes + !abstract);
    return 0;
}

/* From the system. */

static int from_unix(weft_addr *out, const struct sockaddr *sa, size_t bytes) {
    const char *path = (const char *)sa + PATH_OFFSET;
    if (bytes <= PATH_OFFSET) {
        struct sockaddr_un unnamed = {.sun_family = AF_UNIX};
        put(out, &unnamed, PATH_OFFSET);
        return 0;
    }
    size_t n = bytes - PATH_OFFSET;
    return weft_addr_unix(out, path, *path ? strnlen(path, n) : n);
}

int weft_addr_from(weft_addr *out, const struct sockaddr *sa, socklen_t bytes) {
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    sa_family_t family;
    if (!sa || bytes < sizeof family) return -EINVAL;
    memcpy(&family, (const char *)sa + offsetof(struct sockaddr, sa_family), sizeof family);
    switch (family) {
    case AF_INET:
        if (bytes < sizeof in) return -EINVAL;
        memcpy(&in, sa, sizeof in);
        put_ipv4(out, in.sin_addr, in.sin_port);
        return 0;
    case AF_INET6:
        if (bytes < sizeof in6) return -EINVAL;
        memcpy(&in6, sa, sizeof in6);
        put_ipv6(out, in6.sin6_addr, in6.sin6_scope_id, in6.sin6_port);
        return 0;
    case AF_UNIX:
        return from_unix(out, sa, bytes);
    default:
        return -EAFNOSUPPORT;
    }
}

const struct sockaddr *weft_addr_sockaddr(const weft_addr *a) {
    return (const struct sockaddr *)(const void *)a->storage;
}

/* To text. These write into a buffer that holds the longest there is. */

static size_t text_ipv4(const weft_addr *a, char *text) {
    struct sockaddr_in in = ipv4_of(a);
    char host[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    return (size_t)snprintf(text, TEXT_BYTES, "%s:%u", host, ntohs(in.sin_port));
}

/* The interface's name, or its number if it has none now, or one that would not read back. */
static void text_scope(uint32_t scope, char *text) {
    uint32_t as_number;
    if (if_indextoname(scope, text) && !strpbrk(text, "]%") &&
        !parse_number(text, UINT32_MAX, &as_number)) {
        return;
    }
    snprintf(text, IF_NAMESIZE, "%u", scope);
}

static size_t text_ipv6(const weft_addr *a, char *text) {
    struct sockaddr_in6 in6 = ipv6_of(a);
    char host[INET6_ADDRSTRLEN], scope[IF_NAMESIZE] = "";
    unsigned port = ntohs(in6.sin6_port);
    inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof host);
    if (in6.sin6_scope_id == 0) return (size_t)snprintf(text, TEXT_BYTES, "[%s]:%u", host, port);
    text_scope(in6.sin6_scope_id, scope);
    return (size_t)snprintf(text, TEXT_BYTES, "[%s%%%s]:%u", host, scope, port);
}

static size_t text_abstract(const char *name, size_t bytes, char *text) {
    size_t n = 0;
    text[n++] = '@';
    for (size_t i = 1; i < bytes; i++) {
        if (name[i] == 0 || name[i] == '\\') text[n++] = '\\';
        text[n++] = name[i] == 0 ? '0' : name[i];
    }
    text[n] = 0;
    return n;
}

static size_t text_unix(const weft_addr *a, char *text) {
    const char *path = (const char *)a->storage + PATH_OFFSET;
    size_t bytes = path_bytes(a);
    if (bytes > PATH_ROOM) bytes = PATH_ROOM;
    if (bytes > 0 && *path == 0) return text_abstract(path, bytes, text);
    return (size_t)snprintf(text, TEXT_BYTES, "unix:%.*s", (int)bytes, path);
}

size_t weft_addr_text(const weft_addr *a, char *buf, size_t bytes) {
    char text[TEXT_BYTES] = "";
    size_t n = 0;
    switch (family_of(a)) {
    case AF_INET:
        n = text_ipv4(a, text);
        break;
    case AF_INET6:
        n = text_ipv6(a, text);
        break;
    case AF_UNIX:
        n = text_unix(a, text);
        break;
    default:
        break;
    }
    if (bytes > 0) {
        size_t fits = n < bytes ? n : bytes - 1;
        memcpy(buf, text, fits);
        buf[fits] = 0;
    }
    return n;
}

/* Ports and equality. */

int weft_addr_port(const weft_addr *a) {
    switch (family_of(a)) {
    case AF_INET:
        return ntohs(ipv4_of(a).sin_port);
    case AF_INET6:
        return ntohs(ipv6_of(a).sin6_port);
    default:
        return -EINVAL;
    }
}

int weft_addr_set_port(weft_addr *a, int port) {
    if (port < 0 || port > MAX_PORT) return -EINVAL;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    switch (family_of(a)) {
    case AF_INET:
        in = ipv4_of(a);
        put_ipv4(a, in.sin_addr, htons((uint16_t)port));
        return 0;
    case AF_INET6:
        in6 = ipv6_of(a);
        put_ipv6(a, in6.sin6_addr, in6.sin6_scope_id, htons((uint16_t)port));
        return 0;
    default:
        return -EINVAL;
    }
}

bool weft_addr_equal(const weft_addr *a, const weft_addr *b) {
    if (a->bytes != b->bytes || a->bytes > sizeof a->storage) return false;
    return memcmp(a->storage, b->storage, a->bytes) == 0;
}
