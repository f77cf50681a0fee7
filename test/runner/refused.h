/* refused.h: what a test may do to the files that the runtime reads. See refused.c. */
#ifndef WEFT_TEST_REFUSED_H
#define WEFT_TEST_REFUSED_H
/* Where its control groups and mounts lie; NULL: where they do. */
extern const char *refused_root;
#endif
