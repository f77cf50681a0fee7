/* unit/addr.c: addresses from text, from the system, and back. */
#define _GNU_SOURCE 1
#include <weft/net.h>

#include <arpa/inet.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "scratch.h"
#include "test.h"

#define PATH_OFFSET offsetof(struct sockaddr_un, sun_path)

static weft_addr parsed(const char *text) {
    weft_addr a;
    CHECK_EQ(weft_addr_parse(&a, text), 0);
    return a;
}

static void check_text(const weft_addr *a, const char *want) {
    char text[512];
    CHECK_EQ(weft_addr_text(a, text, sizeof text), strlen(want));
    CHECK_STR(text, want);
}

/* The text reads back as the same address. */
static void check_round_trip(const weft_addr *a) {
    char text[512];
    weft_addr back;
    CHECK_LT(weft_addr_text(a, text, sizeof text), sizeof text);
    CHECK_EQ(weft_addr_parse(&back, text), 0);
    CHECK(weft_addr_equal(a, &back));
    CHECK(weft_addr_equal(&back, a));
}

static void check_parse(const char *text, const char *want) {
    weft_addr a = parsed(text);
    check_text(&a, want);
    check_round_trip(&a);
}

/* Refused, and the caller's address is not touched. */
static void check_refused(const char *text, int err) {
    weft_addr a, before;
    memset(&a, 0x5a, sizeof a);
    before = a;
    if (weft_addr_parse(&a, text) != err) fprintf(stderr, "text: \"%s\"\n", text);
    CHECK_EQ(weft_addr_parse(&a, text), err);
    CHECK_MEM(&a, &before, sizeof a);
}

TEST(addr, ipv4) {
    weft_addr a = parsed("127.0.0.1:80");
    const struct sockaddr_in *in = (const void *)weft_addr_sockaddr(&a);
    CHECK_EQ(a.bytes, sizeof *in);
    CHECK_EQ(in->sin_family, AF_INET);
    CHECK_EQ(ntohs(in->sin_port), 80);
    CHECK_EQ(ntohl(in->sin_addr.s_addr), 0x7f000001);
    CHECK_EQ(weft_addr_port(&a), 80);
    check_parse("127.0.0.1:80", "127.0.0.1:80");
    check_parse("0.0.0.0:0", "0.0.0.0:0");
    check_parse("255.255.255.255:65535", "255.255.255.255:65535");
    check_parse("10.0.0.9:00080", "10.0.0.9:80");
}

TEST(addr, ipv6) {
    weft_addr a = parsed("[2001:db8::7]:443");
    const struct sockaddr_in6 *in6 = (const void *)weft_addr_sockaddr(&a);
    CHECK_EQ(a.bytes, sizeof *in6);
    CHECK_EQ(in6->sin6_family, AF_INET6);
    CHECK_EQ(ntohs(in6->sin6_port), 443);
    CHECK_EQ(in6->sin6_addr.s6_addr[15], 7);
    CHECK_EQ(in6->sin6_scope_id, 0);
    check_parse("[::1]:80", "[::1]:80");
    check_parse("[::]:0", "[::]:0");
    check_parse("[1:2:3:4:5:6:7:8]:1", "[1:2:3:4:5:6:7:8]:1");
    check_parse("[FE80::ABCD]:1", "[fe80::abcd]:1");
    check_parse("[0:0:0:0:0:0:0:1]:1", "[::1]:1");
    check_parse("[::ffff:1.2.3.4]:5", "[::ffff:1.2.3.4]:5");
    check_parse("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
}

TEST(addr, ipv6_scope) {
    char lo[IF_NAMESIZE];
    weft_addr a = parsed("[fe80::1%1]:80");
    CHECK_EQ(((const struct sockaddr_in6 *)(const void *)weft_addr_sockaddr(&a))->sin6_scope_id, 1);
    check_round_trip(&a);
    /* An interface that there is not: the number stays. */
    check_parse("[fe80::1%4294967295]:80", "[fe80::1%4294967295]:80");
    if (!if_indextoname(1, lo)) test_skip("no interface has the number 1");
    char by_name[64];
    snprintf(by_name, sizeof by_name, "[fe80::1%%%s]:80", lo);
    check_parse(by_name, by_name);
    weft_addr b = parsed(by_name);
    CHECK(weft_addr_equal(&a, &b));
    a = parsed("[fe80::1]:80");
    CHECK(!weft_addr_equal(&a, &b));
}

/* Both kinds of IP at once: the IPv6 wildcard. */
TEST(addr, wildcard) {
    weft_addr a = parsed(":80"), b = parsed("[::]:80");
    CHECK_EQ(weft_addr_sockaddr(&a)->sa_family, AF_INET6);
    CHECK(weft_addr_equal(&a, &b));
    check_text(&a, "[::]:80");
}

TEST(addr, refused) {
    static const char *const bad[] = {
        "",
        ":",
        "::",
        "[",
        "]",
        "[]",
        "[]:",
        "[]:80",
        "80",
        "a",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:-1",
        "127.0.0.1:+80",
        "127.0.0.1: 80",
        "127.0.0.1:80 ",
        " 127.0.0.1:80",
        "127.0.0.1:65536",
        "127.0.0.1:99999999999999999999",
        "127.0.0.1:0x50",
        "127.0.0.1:80:80",
        "127.0.0.1:http",
        "127.0.0:80",
        "127.1:80",
        "1:80",
        "127.0.0.1.1:80",
        "127.0.0.256:80",
        "127.0.0.01:80",
        "0x7f000001:80",
        "0x7f.0.0.1:80",
        "2130706433:80",
        "127.0.0.1\n:80",
        "1.2.3.4%1:80",
        "1.2.3.4/8:80",
        "-1.2.3.4:80",
        "1..3.4:80",
        ".1.2.3:80",
        "1.2.3.:80",
        "localhost:80",
        "example.com:80",
        "*:80",
        "_:1",
        "::1:80",
        "::1",
        "[::1]",
        "[::1]80",
        "[::1]:",
        "[::1]:65536",
        "[::1]:a",
        "[::1]: 1",
        "[::1:80",
        "::1]:80",
        "[[::1]]:80",
        "[::1]]:80",
        "[::1 ]:80",
        "[127.0.0.1]:80",
        "[localhost]:80",
        "[:::]:80",
        "[1:2]:80",
        "[1:2:3:4:5:6:7:8:9]:80",
        "[12345::]:80",
        "[::g]:80",
        "[::1.2.3]:80",
        "[::1%]:80",
        "[::1%0]:80",
        "[::1%4294967296]:80",
        "[::1%-1]:80",
        "[::1%no such one]:80",
        "[::1%1%1]:80",
        "[::1%%]:80",
        "[%1]:80",
        "[::1%averyveryverylonginterfacename]:80",
        "unix:",
        "unix",
        "UNIX:/x",
        "@\\",
        "@a\\x",
        "@\\1",
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) check_refused(bad[i], -EINVAL);
    check_refused(NULL, -EINVAL);
}

/* C69: what is too long is not looked at in part. */
TEST(addr, over_long) {
    static char text[100000];
    snprintf(text, sizeof text, "0x%0246x7f000001.example.com:80", 0);
    check_refused(text, -EINVAL);
    snprintf(text, sizeof text, "127.0.0.1%0300d:80", 0);
    check_refused(text, -EINVAL);
    snprintf(text, sizeof text, "[::1%%%0300d]:80", 0);
    check_refused(text, -EINVAL);
    snprintf(text, sizeof text, "[%0300d::1]:80", 0);
    check_refused(text, -EINVAL);
    memset(text, '1', sizeof text - 1);
    check_refused(text, -EINVAL);
    memcpy(text, "1.1.1.1:", 8);
    check_refused(text, -EINVAL);
    memcpy(text, "[::1]:11", 8);
    check_refused(text, -EINVAL);
    memcpy(text, "unix:/11", 8);
    check_refused(text, -ENAMETOOLONG);
    text[0] = '@';
    check_refused(text, -ENAMETOOLONG);
}

/* C70: 107 bytes of path fit, 108 do not. */
TEST(addr, unix_paths) {
    char text[256];
    weft_addr a = parsed("unix:/run/x.sock");
    const struct sockaddr_un *un = (const void *)weft_addr_sockaddr(&a);
    CHECK_EQ(un->sun_family, AF_UNIX);
    CHECK_STR(un->sun_path, "/run/x.sock");
    CHECK_EQ(a.bytes, PATH_OFFSET + 12);
    CHECK_EQ(weft_addr_port(&a), -EINVAL);
    check_parse("unix:/run/x.sock", "unix:/run/x.sock");
    check_parse("unix:relative", "unix:relative");
    check_parse("unix:@file", "unix:@file");
    check_parse("unix:unix:", "unix:unix:");
    check_parse("unix:/a b\n\\0\xff", "unix:/a b\n\\0\xff");
    for (int n = 1; n < 200; n++) {
        snprintf(text, sizeof text, "unix:/%0*d", n - 1, 0);
        text[5 + n] = 0;
        if (n <= 107) {
            check_parse(text, text);
        } else {
            check_refused(text, -ENAMETOOLONG);
        }
    }
}

TEST(addr, unix_abstract) {
    weft_addr a = parsed("@name");
    const struct sockaddr_un *un = (const void *)weft_addr_sockaddr(&a);
    CHECK_EQ(a.bytes, PATH_OFFSET + 5);
    CHECK_MEM(un->sun_path, "\0name", 5);
    check_parse("@name", "@name");
    check_parse("@", "@");
    check_parse("@@", "@@");
    check_parse("@a\\\\b\\0c\\0", "@a\\\\b\\0c\\0");
    char text[300] = "@";
    for (int n = 1; n < 150; n++) {
        text[n] = 'n';
        if (n <= 107) {
            check_parse(text, text);
        } else {
            check_refused(text, -ENAMETOOLONG);
        }
    }
    /* As many zeros as a name can hold: each takes two bytes of text. */
    for (int n = 0; n < 107; n++) memcpy(text + 1 + 2 * n, "\\0", 3);
    check_parse(text, text);
    memcpy(text + 1 + 2 * 107, "\\0", 3);
    check_refused(text, -ENAMETOOLONG);
}

TEST(addr, unix_by_bytes) {
    weft_addr a, b;
    char name[120];
    memset(name, 'x', sizeof name);
    CHECK_EQ(weft_addr_unix(&a, name, 107), 0);
    CHECK_EQ(a.bytes, PATH_OFFSET + 108);
    check_round_trip(&a);
    CHECK_EQ(weft_addr_unix(&b, name, 108), -ENAMETOOLONG);
    CHECK_EQ(weft_addr_unix(&b, name, SIZE_MAX), -ENAMETOOLONG);
    CHECK_EQ(weft_addr_unix(&b, name, 0), -EINVAL);
    CHECK_EQ(weft_addr_unix(&b, NULL, 5), -EINVAL);
    CHECK_EQ(weft_addr_unix(&b, "a\0b", 3), -EINVAL);
    CHECK_EQ(weft_addr_unix(&b, "a", 2), -EINVAL);
    /* Abstract: embedded zeros are part of the name, and so is its length. */
    name[0] = name[5] = name[107] = 0;
    CHECK_EQ(weft_addr_unix(&a, name, 108), 0);
    CHECK_EQ(a.bytes, PATH_OFFSET + 108);
    CHECK_MEM((const char *)weft_addr_sockaddr(&a) + PATH_OFFSET, name, 108);
    check_round_trip(&a);
    CHECK_EQ(weft_addr_unix(&b, name, 107), 0);
    CHECK(!weft_addr_equal(&a, &b));
    check_round_trip(&b);
    CHECK_EQ(weft_addr_unix(&b, name, 109), -ENAMETOOLONG);
    CHECK_EQ(weft_addr_unix(&b, name, 1), 0);
    check_text(&b, "@");
}

/* The kernel takes them as they are and gives them back. */
static void check_with_kernel(const weft_addr *want) {
    weft_addr got;
    struct sockaddr_storage ss = {0};
    socklen_t bytes = sizeof ss;
    int fd = socket(weft_addr_sockaddr(want)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return; /* no IPv6 here */
    CHECK_EQ(bind(fd, weft_addr_sockaddr(want), want->bytes), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&ss, &bytes), 0);
    CHECK_EQ(weft_addr_from(&got, (struct sockaddr *)&ss, bytes), 0);
    if (weft_addr_port(want) == 0) CHECK_EQ(weft_addr_set_port(&got, 0), 0);
    CHECK(weft_addr_equal(want, &got));
    close(fd);
}

TEST(addr, kernel_gives_the_same_back) {
    char dir[SCRATCH_BYTES], text[200], name[108] = "\0weft\0test";
    weft_addr a = parsed("127.0.0.1:0");
    check_with_kernel(&a);
    a = parsed(":0");
    check_with_kernel(&a);
    snprintf(name + 20, sizeof name - 20, "%d", (int)getpid());
    CHECK_EQ(weft_addr_unix(&a, name, sizeof name), 0);
    check_with_kernel(&a);
    CHECK(scratch_dir(dir));
    CHECK_EQ(chdir(dir), 0); /* the longest path there is, however long the directory's is */
    int n = snprintf(text, sizeof text, "unix:./");
    for (; n < 5 + 107; n++) text[n] = 's';
    text[n] = 0;
    a = parsed(text);
    check_with_kernel(&a);
    CHECK_EQ(unlink(text + 5), 0);
    CHECK_EQ(rmdir(dir), 0);
}

TEST(addr, from_system) {
    weft_addr a;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(7)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(8)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memset(in.sin_zero, 1, sizeof in.sin_zero);
    in6.sin6_flowinfo = 12345;
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&in, sizeof in), 0);
    check_text(&a, "0.0.0.0:7");
    check_round_trip(&a);
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&in6, sizeof in6), 0);
    check_text(&a, "[::]:8");
    check_round_trip(&a);
    memset(un.sun_path, 'p', sizeof un.sun_path);
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&un, sizeof un), -ENAMETOOLONG);
    un.sun_path[3] = 0;
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&un, sizeof un), 0);
    check_text(&a, "unix:ppp");
    check_round_trip(&a);
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&un, PATH_OFFSET + 2), 0);
    check_text(&a, "unix:pp");
    /* A socket without a name, as accept gives it. */
    CHECK_EQ(weft_addr_from(&a, (struct sockaddr *)&un, PATH_OFFSET), 0);
    CHECK_EQ(a.bytes, PATH_OFFSET);
    check_text(&a, "unix:");
}

TEST(addr, from_system_refused) {
    weft_addr a;
    struct sockaddr_storage ss = {.ss_family = AF_INET};
    const struct sockaddr *sa = (struct sockaddr *)&ss;
    CHECK_EQ(weft_addr_from(&a, NULL, 16), -EINVAL);
    CHECK_EQ(weft_addr_from(&a, sa, 0), -EINVAL);
    CHECK_EQ(weft_addr_from(&a, sa, 1), -EINVAL);
    CHECK_EQ(weft_addr_from(&a, sa, sizeof(struct sockaddr_in) - 1), -EINVAL);
    ss.ss_family = AF_INET6;
    CHECK_EQ(weft_addr_from(&a, sa, sizeof(struct sockaddr_in6) - 1), -EINVAL);
    ss.ss_family = AF_UNSPEC;
    CHECK_EQ(weft_addr_from(&a, sa, sizeof ss), -EAFNOSUPPORT);
    ss.ss_family = AF_NETLINK;
    CHECK_EQ(weft_addr_from(&a, sa, sizeof ss), -EAFNOSUPPORT);
}

TEST(addr, ports) {
    weft_addr a = parsed("127.0.0.1:80"), b = parsed("127.0.0.1:81");
    CHECK(!weft_addr_equal(&a, &b));
    CHECK_EQ(weft_addr_set_port(&a, 81), 0);
    CHECK(weft_addr_equal(&a, &b));
    CHECK_EQ(weft_addr_set_port(&a, 65535), 0);
    CHECK_EQ(weft_addr_port(&a), 65535);
    CHECK_EQ(weft_addr_set_port(&a, 65536), -EINVAL);
    CHECK_EQ(weft_addr_set_port(&a, -1), -EINVAL);
    CHECK_EQ(weft_addr_port(&a), 65535);
    a = parsed("[fe80::1%7]:1");
    CHECK_EQ(weft_addr_set_port(&a, 0), 0);
    b = parsed("[fe80::1%7]:0");
    CHECK(weft_addr_equal(&a, &b));
    a = parsed("@x");
    CHECK_EQ(weft_addr_set_port(&a, 5), -EINVAL);
}

TEST(addr, text_as_snprintf) {
    weft_addr a = parsed("127.0.0.1:80");
    char buf[32];
    CHECK_EQ(weft_addr_text(&a, NULL, 0), 12);
    for (size_t n = 1; n < 20; n++) {
        memset(buf, 'z', sizeof buf);
        CHECK_EQ(weft_addr_text(&a, buf, n), 12);
        CHECK_EQ(strlen(buf), n <= 12 ? n - 1 : 12);
        CHECK_EQ(memcmp(buf, "127.0.0.1:80", strlen(buf)), 0);
        CHECK_EQ(buf[n <= 12 ? n : 13], 'z');
    }
}

/* What was never an address, or was written over: no text, no port, nothing outside of it read. */
TEST(addr, zero_and_damaged) {
    weft_addr zero = {0}, a;
    char buf[300];
    CHECK_EQ(weft_addr_text(&zero, buf, sizeof buf), 0);
    CHECK_STR(buf, "");
    CHECK_EQ(weft_addr_port(&zero), -EINVAL);
    CHECK_EQ(weft_addr_set_port(&zero, 1), -EINVAL);
    CHECK(weft_addr_equal(&zero, &zero));
    a = parsed("1.2.3.4:5");
    CHECK(!weft_addr_equal(&zero, &a));
    for (int i = 0; i < 100000; i++) {
        for (size_t k = 0; k < sizeof a; k++) ((unsigned char *)&a)[k] = (unsigned char)rand();
        if (i & 1) a.bytes = (uint32_t)rand() % 140;
        const sa_family_t families[] = {AF_INET, AF_INET6, AF_UNIX};
        if (i & 2) memcpy(a.storage, &families[i % 3], sizeof(sa_family_t));
        size_t n = weft_addr_text(&a, buf, sizeof buf);
        CHECK_LT(n, sizeof buf);
        weft_addr_port(&a);
        weft_addr_equal(&a, &a);
        weft_addr_set_port(&a, i & 0xffff);
    }
}

/* Random bytes, and true addresses with random damage: refused, or an address that round-trips. */
static void check_hostile(char *text) {
    weft_addr a;
    char copy[300], again[512];
    snprintf(copy, sizeof copy, "%s", text);
    if (weft_addr_parse(&a, text) != 0) return;
    check_round_trip(&a);
    CHECK_LE(a.bytes, sizeof(struct sockaddr_un));
    weft_addr_text(&a, again, sizeof again);
    CHECK_STR(text, copy);
}

TEST(addr, hostile_text) {
    static const char *const seeds[] = {"127.0.0.1:80", "[fe80::1%1]:80", ":80",
                                        "unix:/run/x",  "@ab\\0c",        "[::ffff:1.2.3.4]:65535"};
    static const char letters[] = "0123456789abcdefx.:[]%@/\\-+ \n\xff";
    char text[200];
    srand(11);
    for (int i = 0; i < 200000; i++) {
        size_t n = 0;
        if (i % 4) {
            n = (size_t)snprintf(text, sizeof text, "%s",
                                 seeds[(size_t)rand() % WEFT_COUNT(seeds)]);
            for (int k = rand() % 3; k >= 0; k--) {
                text[(size_t)rand() % n] = letters[(size_t)rand() % (sizeof letters - 1)];
            }
        } else {
            n = (size_t)rand() % (sizeof text - 1);
            for (size_t k = 0; k < n; k++) text[k] = (char)(1 + rand() % 255);
        }
        text[n] = 0;
        check_hostile(text);
    }
}
