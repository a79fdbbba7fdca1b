#include "grammar/trigger_pattern.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <utility>

#include "error.h"

namespace eliza {

// ---- reading a pattern ---------------------------------------------------------------------------

class PatternParser {
public:
    PatternParser(std::string_view text, TriggerPattern & pattern) : text_(text), pattern_(pattern) {}

    void run() {
        if (text_.size() > max_bytes) {
            throw refused("the pattern is longer than " + std::to_string(max_bytes) + " bytes");
        }
        Program program = parse_alternatives();
        if (i_ < text_.size()) {
            throw refused("')' without '('");
        }
        append(program, {{Op::match}});
        pattern_.program_ = std::move(program);
    }

private:
    using Op = TriggerPattern::Op;
    using Program = TriggerPattern::Program;
    using ByteSet = TriggerPattern::ByteSet;

    static constexpr size_t max_bytes = 100000;
    static constexpr size_t max_depth = 64;
    static constexpr size_t max_groups = 32;
    static constexpr size_t max_sets = 1000;
    static constexpr size_t unbounded = std::numeric_limits<size_t>::max();

    Error refused(const std::string & what) const {
        return invalid_argument(what + " (at byte " + std::to_string(i_) + " of the pattern)");
    }

    bool at_end() const { return i_ == text_.size(); }
    bool next_is(char c) const { return !at_end() && text_[i_] == c; }
    bool take(std::string_view expected) {
        if (text_.substr(i_, expected.size()) != expected) {
            return false;
        }
        i_ += expected.size();
        return true;
    }

    void require_room(size_t n) const {
        if (n > TriggerPattern::max_instructions) {
            throw refused("the pattern has more than " + std::to_string(TriggerPattern::max_instructions) +
                          " instructions with repetitions written out");
        }
    }

    void append(Program & program, const Program & more) const {
        require_room(program.size() + more.size());
        program.insert(program.end(), more.begin(), more.end());
    }

    Program parse_alternatives() {
        Program program = parse_sequence();
        std::vector<size_t> jumps_to_end;
        size_t begin = 0;
        while (take("|")) {
            program.insert(program.begin() + static_cast<ptrdiff_t>(begin),
                           {Op::split, 1, static_cast<int32_t>(program.size() - begin + 2)});
            jumps_to_end.push_back(program.size());
            program.push_back({Op::jump});
            begin = program.size();
            append(program, parse_sequence());
        }
        for (const size_t jump : jumps_to_end) {
            program[jump].to = static_cast<int32_t>(program.size() - jump);
        }
        return program;
    }

    Program parse_sequence() {
        Program program;
        while (!at_end() && !next_is('|') && !next_is(')')) {
            append(program, parse_term());
        }
        return program;
    }

    Program parse_term() {
        if (take("^")) return {{Op::text_begin}};
        if (take("$")) return {{Op::text_end}};
        if (take("\\b")) return {{Op::word_border}};
        if (take("\\B")) return {{Op::no_word_border}};
        Program atom = parse_atom();
        size_t least = 0, most = 0;
        if (!take_counts(least, most)) {
            return atom;
        }
        const bool lazy = take("?");
        return repeated(atom, least, most, lazy);
    }

    Program parse_atom() {
        const char c = text_[i_];
        if (c == '(') return parse_group();
        if (c == '[') return one_of(parse_set());
        if (c == '*' || c == '+' || c == '?' || (c == '{' && counts_follow())) {
            throw refused("nothing to repeat");
        }
        ++i_;
        if (c == '.') {
            ByteSet set;
            set.set();
            return one_of(set.reset('\n').reset('\r'));
        }
        if (c == '\\') {
            return parse_escape();
        }
        Program character = one_of(only(c));
        while (is_inside_character(c) && !at_end() && (static_cast<uint8_t>(text_[i_]) & 0xc0) == 0x80) {
            append(character, one_of(only(text_[i_++])));
        }
        return character;
    }

    static bool is_inside_character(char lead) { return static_cast<uint8_t>(lead) >= 0xc0; }

    Program parse_group() {
        if (++depth_ > max_depth) {
            throw refused("groups are nested deeper than " + std::to_string(max_depth));
        }
        ++i_;
        Program program;
        if (take("?:")) {
            program = parse_alternatives();
        } else if (next_is('?')) {
            throw refused("lookahead, lookbehind and named groups are not supported");
        } else {
            if (pattern_.n_groups_ == max_groups) {
                throw refused("more than " + std::to_string(max_groups) +
                              " groups; use (?:...) for groups that need not be captured");
            }
            const auto border = static_cast<int32_t>(2 * ++pattern_.n_groups_ - 1);
            program = {{Op::border, border}};
            append(program, parse_alternatives());
            append(program, {{Op::border, border + 1}});
        }
        if (!take(")")) {
            throw refused("'(' without ')'");
        }
        --depth_;
        return program;
    }

    Program parse_escape() {
        if (at_end()) {
            throw refused("nothing follows the last '\\'");
        }
        if (const auto set = named_set(text_[i_])) {
            ++i_;
            return one_of(*set);
        }
        Program program;
        for (const char byte : escaped_character()) {
            append(program, one_of(only(byte)));
        }
        return program;
    }

    // Parses the character after a backslash.
    std::string escaped_character() {
        const char c = text_[i_++];
        switch (c) {
            case 'n': return "\n";
            case 'r': return "\r";
            case 't': return "\t";
            case 'f': return "\f";
            case 'v': return "\v";
            case '0': return std::string(1, '\0');
            case 'x': return std::string(1, static_cast<char>(parse_hex(2)));
            case 'u': return utf8(parse_hex(4));
            default: break;
        }
        if (c >= '1' && c <= '9') {
            throw refused("backreferences are not supported");
        }
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
            throw refused(std::string("'\\") + c + "' is not a known escape sequence");
        }
        return std::string(1, c);
    }

    uint32_t parse_hex(size_t n_digits) {
        uint32_t value = 0;
        for (size_t i = 0; i < n_digits; ++i, ++i_) {
            if (at_end() || std::isxdigit(static_cast<unsigned char>(text_[i_])) == 0) {
                throw refused("expected " + std::to_string(n_digits) + " hexadecimal digits");
            }
            const int digit = std::tolower(static_cast<unsigned char>(text_[i_]));
            value = value * 16 + static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        }
        return value;
    }

    static std::string utf8(uint32_t code_point) {
        const auto byte = [](uint32_t bits) { return static_cast<char>(bits); };
        if (code_point < 0x80) return {byte(code_point)};
        if (code_point < 0x800) return {byte(0xc0 | code_point >> 6), byte(0x80 | (code_point & 0x3f))};
        return {byte(0xe0 | code_point >> 12), byte(0x80 | (code_point >> 6 & 0x3f)), byte(0x80 | (code_point & 0x3f))};
    }

    // ---- sets of bytes ----

    static ByteSet only(char c) { return ByteSet().set(static_cast<uint8_t>(c)); }

    template <typename IsIn>
    static ByteSet bytes_that(const IsIn & is_in) {
        ByteSet set;
        for (int byte = 0; byte < 128; ++byte) {
            set.set(static_cast<size_t>(byte), is_in(byte) != 0);
        }
        return set;
    }

    static std::optional<ByteSet> named_set(char name) {
        const auto word = [](int c) { return std::isalnum(c) != 0 || c == '_' ? 1 : 0; };
        switch (name) {
            case 'd': return bytes_that([](int c) { return std::isdigit(c); });
            case 'D': return ~bytes_that([](int c) { return std::isdigit(c); });
            case 's': return bytes_that([](int c) { return std::isspace(c); });
            case 'S': return ~bytes_that([](int c) { return std::isspace(c); });
            case 'w': return bytes_that(word);
            case 'W': return ~bytes_that(word);
            default: return std::nullopt;
        }
    }

    std::optional<ByteSet> take_posix_set() {
        static const std::pair<const char *, int (*)(int)> sets[] = {
            {"[:alnum:]", std::isalnum}, {"[:alpha:]", std::isalpha}, {"[:blank:]", std::isblank},
            {"[:cntrl:]", std::iscntrl}, {"[:digit:]", std::isdigit}, {"[:graph:]", std::isgraph},
            {"[:lower:]", std::islower}, {"[:print:]", std::isprint}, {"[:punct:]", std::ispunct},
            {"[:space:]", std::isspace}, {"[:upper:]", std::isupper}, {"[:xdigit:]", std::isxdigit}};
        for (const auto & [name, is_in] : sets) {
            if (take(name)) {
                return bytes_that(is_in);
            }
        }
        return std::nullopt;
    }

    ByteSet parse_set() {
        ++i_;
        const bool inverted = take("^");
        ByteSet set;
        while (!take("]")) {
            if (at_end()) {
                throw refused("'[' without ']'");
            }
            if (const auto named = take_posix_set()) {
                set |= *named;
                continue;
            }
            if (next_is('\\') && i_ + 1 < text_.size()) {
                if (const auto named = named_set(text_[i_ + 1])) {
                    i_ += 2;
                    set |= *named;
                    continue;
                }
            }
            const size_t first = parse_member();
            size_t last = first;
            if (next_is('-') && i_ + 1 < text_.size() && text_[i_ + 1] != ']') {
                ++i_;
                last = parse_member();
            }
            if (last < first) {
                throw refused("the last character of a range is less than the first");
            }
            for (size_t byte = first; byte <= last; ++byte) {
                set.set(byte);
            }
        }
        return inverted ? ~set : set;
    }

    size_t parse_member() {
        std::string member(1, text_[i_++]);
        if (member == "\\") {
            if (at_end()) {
                throw refused("'[' without ']'");
            }
            member = take("b") ? "\b" : escaped_character();
        }
        if (member.size() > 1 || static_cast<uint8_t>(member[0]) >= 0x80) {
            throw refused("'[...]' cannot contain a character that is not ASCII; use (?:...|...)");
        }
        return static_cast<uint8_t>(member[0]);
    }

    Program one_of(const ByteSet & set) {
        const auto known = std::find(pattern_.sets_.begin(), pattern_.sets_.end(), set);
        const auto index = static_cast<int32_t>(known - pattern_.sets_.begin());
        if (known == pattern_.sets_.end()) {
            if (pattern_.sets_.size() == max_sets) {
                throw refused("more than " + std::to_string(max_sets) + " different sets of characters");
            }
            pattern_.sets_.push_back(set);
        }
        return {{Op::byte, index}};
    }

    // ---- repetitions ----

    bool counts_follow() const {
        return i_ + 1 < text_.size() && std::isdigit(static_cast<uint8_t>(text_[i_ + 1])) != 0;
    }

    bool take_counts(size_t & least, size_t & most) {
        if (take("*")) {
            least = 0, most = unbounded;
        } else if (take("+")) {
            least = 1, most = unbounded;
        } else if (take("?")) {
            least = 0, most = 1;
        } else if (next_is('{') && counts_follow()) {
            ++i_;
            least = most = parse_count();
            if (take(",")) {
                most = next_is('}') ? unbounded : parse_count();
            }
            if (!take("}")) {
                throw refused("'{' without '}'");
            }
            if (most < least) {
                throw refused("the maximum of a repetition is less than its minimum");
            }
        } else {
            return false;
        }
        return true;
    }

    size_t parse_count() {
        size_t count = 0, n_digits = 0;
        for (; !at_end() && std::isdigit(static_cast<uint8_t>(text_[i_])) != 0; ++i_, ++n_digits) {
            count = std::min(count * 10 + static_cast<size_t>(text_[i_] - '0'), TriggerPattern::max_instructions + 1);
        }
        if (n_digits == 0) {
            throw refused("expected a number");
        }
        return count;
    }

    Program repeated(const Program & atom, size_t least, size_t most, bool lazy) const {
        const auto size = static_cast<int32_t>(atom.size());
        const auto split = [&](int32_t again, int32_t on) {
            return lazy ? Program{{Op::split, on, again}} : Program{{Op::split, again, on}};
        };
        const size_t n_written = most == unbounded ? std::max<size_t>(least, 1) : most;
        // No overflow, because both factors are at most max_instructions + 1.
        require_room(n_written * (atom.size() + 1));
        Program program;
        for (size_t i = 0; i < least; ++i) {
            append(program, atom);
        }
        if (most == unbounded && least > 0) {
            append(program, split(-size, 1));
        } else if (most == unbounded) {
            append(program, split(1, size + 2));
            append(program, atom);
            append(program, {{Op::jump, -size - 1}});
        } else {
            for (size_t n_left = most - least; n_left > 0; --n_left) {
                append(program, split(1, static_cast<int32_t>(n_left) * (size + 1)));
                append(program, atom);
            }
        }
        return program;
    }

    const std::string_view text_;
    TriggerPattern & pattern_;
    size_t i_ = 0;
    size_t depth_ = 0;
};

TriggerPattern::TriggerPattern(std::string_view pattern) { PatternParser(pattern, *this).run(); }

// ---- searching -----------------------------------------------------------------------------------

TriggerSearch::TriggerSearch(std::shared_ptr<const TriggerPattern> pattern)
    : pattern_(std::move(pattern)),
      n_borders_(1 + 2 * pattern_->n_groups_),
      seen_(pattern_->size(), 0),
      borders_(n_borders_, unset) {}

void TriggerSearch::reset() {
    arrived_.clear();
    match_.clear();
    n_read_ = 0;
    last_byte_ = text_ends;
}

std::optional<size_t> TriggerSearch::feed(std::string_view bytes) {
    for (const char c : bytes) {
        const auto byte = static_cast<uint8_t>(c);
        follow_all(byte);
        arrived_.clear();
        for (size_t i = 0; i < waiting_.at.size(); ++i) {
            const uint32_t at = waiting_.at[i];
            if (pattern_->sets_[static_cast<size_t>(pattern_->program_[at].to)][byte]) {
                const auto borders = waiting_.borders.begin() + static_cast<ptrdiff_t>(i * n_borders_);
                arrived_.at.push_back(at + 1);
                arrived_.borders.insert(arrived_.borders.end(), borders, borders + static_cast<ptrdiff_t>(n_borders_));
            }
        }
        ++n_read_;
        last_byte_ = byte;
    }
    follow_all(text_ends);
    if (match_.empty()) {
        return std::nullopt;
    }
    return begin_of_match();
}

// Follows all threads that read the last byte, and a new thread that begins here. If a thread has already matched, no
// new one is started, because its match begins no later. A thread that matches discards all less preferred threads.
bool TriggerSearch::follow_all(int next_byte) {
    waiting_.clear();
    ++round_;
    for (size_t i = 0; i < arrived_.at.size(); ++i) {
        const auto borders = arrived_.borders.begin() + static_cast<ptrdiff_t>(i * n_borders_);
        std::copy(borders, borders + static_cast<ptrdiff_t>(n_borders_), borders_.begin());
        if (follow(arrived_.at[i], next_byte)) {
            return true;
        }
    }
    if (!match_.empty()) {
        return true;
    }
    std::fill(borders_.begin(), borders_.end(), unset);
    borders_[0] = n_read_;
    return follow(0, next_byte);
}

// Follows a thread to all instructions that read a byte, in order of preference. Returns true if it reaches the match.
bool TriggerSearch::follow(uint32_t at, int next_byte) {
    using Op = TriggerPattern::Op;
    const auto is_word = [](int byte) {
        return byte != text_ends && byte < 0x80 && (std::isalnum(byte) != 0 || byte == '_');
    };
    const bool at_word_border = is_word(last_byte_) != is_word(next_byte);
    to_visit_.assign(1, {at, unset, 0});
    while (!to_visit_.empty()) {
        const Visit visit = to_visit_.back();
        to_visit_.pop_back();
        if (visit.border != unset) {
            borders_[visit.border] = visit.value;
            continue;
        }
        if (seen_[visit.at] == round_) {
            continue;
        }
        seen_[visit.at] = round_;
        const TriggerPattern::Instruction & here = pattern_->program_[visit.at];
        const auto go_on = [&](int32_t distance) {
            to_visit_.push_back({static_cast<uint32_t>(static_cast<int32_t>(visit.at) + distance), unset, 0});
        };
        switch (here.op) {
            case Op::byte:
                waiting_.at.push_back(visit.at);
                waiting_.borders.insert(waiting_.borders.end(), borders_.begin(), borders_.end());
                break;
            case Op::split:
                go_on(here.other);
                go_on(here.to);
                break;
            case Op::jump: go_on(here.to); break;
            case Op::border: {
                size_t & border = borders_[static_cast<size_t>(here.to)];
                // Restores it for the alternatives visited later.
                to_visit_.push_back({0, static_cast<size_t>(here.to), border});
                border = n_read_;
                go_on(1);
                break;
            }
            case Op::text_begin:
                if (n_read_ == 0) go_on(1);
                break;
            case Op::text_end:
                if (next_byte == text_ends) go_on(1);
                break;
            case Op::word_border:
                if (at_word_border) go_on(1);
                break;
            case Op::no_word_border:
                if (!at_word_border) go_on(1);
                break;
            case Op::match: match_ = borders_; return true;
        }
    }
    return false;
}

size_t TriggerSearch::begin_of_match() const {
    for (size_t group = 1; group + 1 < match_.size(); group += 2) {
        if (match_[group] != unset && match_[group + 1] != unset && match_[group + 1] > match_[group]) {
            return match_[group];
        }
    }
    return match_[0];
}

}  // namespace eliza
