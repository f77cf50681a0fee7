/* The library says the version that its headers say. */
#include "test.h"

#include <stdio.h>

#include <weft/base.h>

TEST(version, library_and_headers_agree) {
    int major, minor, patch;
    CHECK_EQ(sscanf(weft_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    CHECK_EQ(major, WEFT_VERSION_MAJOR);
    CHECK_EQ(minor, WEFT_VERSION_MINOR);
    CHECK_EQ(patch, WEFT_VERSION_PATCH);
}
