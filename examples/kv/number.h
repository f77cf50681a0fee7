/* number.h: whole numbers as RESP and the commands write them. */
#ifndef KV_NUMBER_H
#define KV_NUMBER_H
#include "bytes.h"
#include <stdint.h>

#define NUMBER_TEXT_MAX 20 /* "-9223372036854775808" and "18446744073709551615" */

/* Only the one way to write a number is taken: no blank, no plus sign, no leading zero, no "-0". So
   a value that was counted up reads back as the very bytes that were stored. */
bool number_parse(struct bytes text, int64_t *out);

/* Writes the digits without a terminator and says how many bytes; `out` has room for
   NUMBER_TEXT_MAX. */
size_t number_format(char *out, int64_t v);
size_t number_format_unsigned(char *out, uint64_t v);
#endif
