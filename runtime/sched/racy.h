/* Looks at what changes meanwhile: what may be seen torn is text of a bounded length, and figures. */
#ifndef WEFT__RACY_H
#define WEFT__RACY_H

#include "base/base.h"

#ifdef WEFT__TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define weft__racy_reads_begin() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define weft__racy_reads_end() AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define weft__racy_reads_begin() ((void)0)
#define weft__racy_reads_end() ((void)0)
#endif
#endif
