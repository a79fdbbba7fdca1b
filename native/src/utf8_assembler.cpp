#include "utf8_assembler.h"

#include <cstddef>

namespace eliza {
namespace {

constexpr const char * replacement = "\xEF\xBF\xBD";

// Returns the length in bytes of a character whose first byte is `lead`, or 0 if no character begins with `lead`.
size_t length_of(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// The second byte is limited further, against overlong forms, surrogates and code points too large.
bool continues(unsigned char lead, size_t index, unsigned char byte) {
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (index == 1) {
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    }
    return byte >= low && byte <= high;
}

}  // namespace

std::string Utf8Assembler::push(std::string_view bytes) {
    held_.append(bytes);
    std::string text;
    size_t begin = 0;
    while (begin < held_.size()) {
        const auto lead = static_cast<unsigned char>(held_[begin]);
        const size_t length = length_of(lead);
        size_t n = 1;
        while (n < length && begin + n < held_.size() &&
               continues(lead, n, static_cast<unsigned char>(held_[begin + n]))) {
            ++n;
        }
        if (n < length && begin + n == held_.size()) {
            break;  // the rest of this character may still come
        }
        if (n == length && lead != 0) {
            text.append(held_, begin, n);
        } else {
            text += replacement;
        }
        begin += n;
    }
    held_.erase(0, begin);
    return text;
}

std::string Utf8Assembler::finish() {
    const bool any = !held_.empty();
    held_.clear();
    return any ? replacement : "";
}

}  // namespace eliza
