// Bytes in, whole UTF-8 characters out. Tokens are byte strings and may end inside a character.
#pragma once

#include <string>
#include <string_view>

namespace eliza {

class Utf8Assembler {
public:
    // Takes the next bytes; returns the characters that are now complete. Bytes that can be part of
    // no character come out as U+FFFD, one for each maximal run that a character could have begun
    // with (the Unicode standard's recommendation, and Python's). So does NUL, which would end the
    // C string it travels in.
    std::string push(std::string_view bytes);

    // What is held back at the end of a text, as U+FFFD; "" if nothing is.
    std::string finish();

private:
    std::string held_;
};

}  // namespace eliza
