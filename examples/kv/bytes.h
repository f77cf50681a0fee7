/* bytes.h: a run of bytes that somebody else owns. Keys and values are binary, so a length goes
   with every pointer. */
#ifndef KV_BYTES_H
#define KV_BYTES_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct bytes {
    const char *at; /* never NULL, not terminated */
    size_t n;
};

static inline struct bytes bytes_of(const char *text) { return (struct bytes){text, strlen(text)}; }

static inline char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c; }

/* Whether `b`, in whatever case a client wrote it, is `word`, which is in small letters. */
static inline bool bytes_is(struct bytes b, const char *word) {
    size_t i = 0;
    while (i < b.n && word[i] != '\0' && lower(b.at[i]) == word[i]) i++;
    return i == b.n && word[i] == '\0';
}
#endif
