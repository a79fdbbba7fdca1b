#include "grammar/gbnf_limits.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "llama-grammar.h"
#include "utf8_assembler.h"

namespace eliza {
namespace {

constexpr size_t max_group_depth = 256;
constexpr size_t max_rules = 10000;
constexpr size_t max_name_bytes = 256;
constexpr size_t max_elements = 1000000;  // characters, references and ranges, with repetitions written out

Error refused(const std::string & what) { return invalid_argument("gbnf_grammar: " + what); }

[[noreturn]] void refuse_count(const char * what, size_t limit) {
    throw refused(std::string(what) + ", with repetitions written out, exceed the limit of " + std::to_string(limit));
}

// Counts, in one walk over the text, the elements and rules that the parser would create.
class SizeCheck {
public:
    explicit SizeCheck(const std::string & gbnf) : text_(gbnf) {}

    void run() {
        while (i_ < text_.size()) {
            step(text_[i_]);
        }
    }

private:
    void step(char c) {
        if (c == '"' || c == '[') {
            count_symbol(skip_quoted(c == '"' ? '"' : ']'));
        } else if (c == '#') {
            i_ += std::strcspn(text_.c_str() + i_, "\r\n");
        } else if (c == '<') {  // a token, such as <|"|>
            i_ += std::strcspn(text_.c_str() + i_, ">");
            count_symbol(1);
        } else if (c == '(') {
            if (++depth_ > max_group_depth) {
                throw refused("groups are nested deeper than " + std::to_string(max_group_depth));
            }
            ++i_;
        } else if (c == ')') {
            depth_ -= depth_ > 0 ? 1 : 0;
            ++i_;
            count_symbol(1);  // the rule that the parser creates for the group
        } else if (c == '*' || c == '+' || c == '?') {
            repeat(c == '+' ? 1 : 0, c == '?' ? 1 : no_most);
            ++i_;
        } else if (c == '{') {
            read_counts();
        } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-') {
            const size_t begin = i_;
            while (i_ < text_.size() &&
                   (std::isalnum(static_cast<unsigned char>(text_[i_])) != 0 || text_[i_] == '-')) {
                ++i_;
            }
            if (i_ - begin > max_name_bytes) {  // the parser derives a name for every group from the rule's name
                throw refused("the name \"" + text_.substr(begin, 40) + "...\" is longer than " +
                              std::to_string(max_name_bytes) + " bytes");
            }
            count_symbol(1);
        } else {
            ++i_;
            if (c == '.') {
                count_symbol(1);
            }
        }
    }

    // Returns the number of characters up to the end of a literal or class, at least 1.
    size_t skip_quoted(char end) {
        size_t n = 0;
        for (++i_; i_ < text_.size() && text_[i_] != end; ++n) {
            i_ += text_[i_] == '\\' ? 2 : 1;
        }
        ++i_;
        return std::max<size_t>(n, 1);
    }

    void count_symbol(size_t n_elements) {
        last_ = n_elements;
        add(n_elements, 0);
    }

    void add(size_t n_elements, size_t n_rules) {
        n_elements_ += n_elements;
        n_rules_ += n_rules;
        if (n_elements_ > max_elements) {
            refuse_count("its characters and references", max_elements);
        }
        if (n_rules_ > max_rules) {
            refuse_count("its rules", max_rules);
        }
    }

    // "{m}", "{m,}" or "{m,n}"
    void read_counts() {
        const size_t begin = i_++;
        const std::optional<size_t> least = read_number();
        skip_space();
        std::optional<size_t> most = least;
        if (i_ < text_.size() && text_[i_] == ',') {
            ++i_;
            most = read_number().value_or(no_most);
            skip_space();
        }
        if (!least || i_ >= text_.size() || text_[i_] != '}') {
            return;  // the parser will report it
        }
        ++i_;
        if (*most < *least) {
            throw refused("the repetition " + text_.substr(begin, std::min<size_t>(i_ - begin, 40)) +
                          " has a maximum below its minimum");
        }
        repeat(*least, *most);
    }

    std::optional<size_t> read_number() {
        skip_space();
        size_t number = 0, n_digits = 0;
        for (; i_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i_])) != 0; ++i_, ++n_digits) {
            number = std::min(number * 10 + static_cast<size_t>(text_[i_] - '0'), no_most - 1);
        }
        return n_digits > 0 ? std::optional<size_t>(number) : std::nullopt;
    }

    void skip_space() { i_ += std::strspn(text_.c_str() + i_, " \t\r\n"); }

    // The parser writes the symbol out `least` times, and creates a rule for every additional repetition.
    void repeat(size_t least, size_t most) {
        constexpr size_t unbounded = 2000;  // the parser treats a larger count as unbounded
        least = std::min(least, unbounded + 1);
        const size_t n_more = most > unbounded ? 1 : most - std::min(least, most);
        const size_t n_written = last_ * (least > 0 ? least - 1 : 0);
        add(n_written + n_more * (last_ + 3), n_more);
        last_ = last_ * least + (n_more > 0 ? 1 : 0);
    }

    static constexpr size_t no_most = size_t(1) << 32;

    const std::string & text_;
    size_t i_ = 0;
    size_t depth_ = 0;
    size_t last_ = 0;  // the number of elements that a repetition would repeat
    size_t n_elements_ = 0;
    size_t n_rules_ = 0;
};

bool is_end(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

// Returns the rules that can match the empty string: an alternative of the rule has no elements, or only such rules.
std::vector<bool> rules_that_may_be_empty(const llama_grammar_parser & parser) {
    struct Alternative {
        uint32_t rule;
        size_t n_left;  // references to rules that are not known to match the empty string
    };
    std::vector<Alternative> alternatives;
    std::vector<std::vector<size_t>> asked_by(parser.rules.size());
    std::vector<uint32_t> found;
    std::vector<bool> may_be_empty(parser.rules.size());
    const auto find = [&](uint32_t rule) {
        if (!may_be_empty[rule]) {
            may_be_empty[rule] = true;
            found.push_back(rule);
        }
    };
    for (uint32_t rule = 0; rule < parser.rules.size(); ++rule) {
        Alternative alternative{rule, 0};
        bool only_rules = true;
        for (const llama_grammar_element & element : parser.rules[rule]) {
            if (!is_end(element)) {
                only_rules = only_rules && element.type == LLAMA_GRETYPE_RULE_REF;
                if (only_rules) {
                    ++alternative.n_left;
                    asked_by[element.value].push_back(alternatives.size());
                }
                continue;
            }
            if (only_rules && alternative.n_left == 0) {
                find(rule);
            }
            alternative.n_left += only_rules ? 0 : 1;  // an element that is not a rule is never empty
            alternatives.push_back(alternative);
            alternative = {rule, 0};
            only_rules = true;
        }
    }
    while (!found.empty()) {
        const uint32_t rule = found.back();
        found.pop_back();
        for (const size_t i : asked_by[rule]) {
            if (--alternatives[i].n_left == 0) {
                find(alternatives[i].rule);
            }
        }
    }
    return may_be_empty;
}

// Finds rules that begin with themselves. It computes the strongly connected components of the relation "can begin
// with", with Tarjan's algorithm and without recursion. A right-recursive list whose earlier elements can be empty also
// begins with itself, as in `list ::= item? list | ""`. It is accepted, because nothing has to follow the inner list.
class LeftRecursionCheck {
public:
    explicit LeftRecursionCheck(const llama_grammar_parser & parser)
        : parser_(parser), may_be_empty_(rules_that_may_be_empty(parser)), known_(parser.rules.size()) {}

    void run() {
        for (uint32_t rule = 0; rule < known_.size(); ++rule) {
            if (known_[rule].number == 0) {
                follow(rule);
            }
        }
    }

private:
    struct First {
        uint32_t rule;
        bool is_last;  // no element has to follow it
    };
    struct Known {
        size_t number = 0;  // in the order of discovery, from 1
        size_t lowest = 0;  // the lowest number reachable from here
        bool is_open = false;
        std::vector<First> first;
    };
    struct Visit {
        uint32_t rule;
        size_t next;
    };

    void follow(uint32_t root) {
        std::vector<Visit> path;
        enter(path, root);
        while (!path.empty()) {
            Known & here = known_[path.back().rule];
            if (path.back().next < here.first.size()) {
                const uint32_t rule = here.first[path.back().next++].rule;
                if (known_[rule].number == 0) {
                    enter(path, rule);
                } else if (known_[rule].is_open) {
                    here.lowest = std::min(here.lowest, known_[rule].number);
                }
                continue;
            }
            const size_t lowest = here.lowest;
            if (lowest == here.number) {
                close_component(path.back().rule);
            }
            path.pop_back();
            if (!path.empty()) {
                Known & parent = known_[path.back().rule];
                parent.lowest = std::min(parent.lowest, lowest);
            }
        }
    }

    void enter(std::vector<Visit> & path, uint32_t rule) {
        known_[rule] = {++n_seen_, n_seen_, true, first_rules(parser_.rules[rule])};
        open_.push_back(rule);
        path.push_back({rule, 0});
    }

    // The open rules from `root` on form a component: each can begin with every other.
    void close_component(uint32_t root) {
        const auto begin = std::find(open_.rbegin(), open_.rend(), root).base() - 1;
        const size_t number = known_[root].number;
        for (auto rule = begin; rule != open_.end(); ++rule) {
            for (const First & first : known_[*rule].first) {
                if (!first.is_last && known_[first.rule].is_open && known_[first.rule].number >= number) {
                    throw refused("left recursion: rule \"" + name_of(first.rule) + "\" begins with itself");
                }
            }
        }
        for (auto rule = begin; rule != open_.end(); ++rule) {
            known_[*rule].is_open = false;
        }
        open_.erase(begin, open_.end());
    }

    // Returns the rules that can come first in a rule.
    std::vector<First> first_rules(const llama_grammar_rule & rule) const {
        std::vector<First> first;
        bool is_first = true;
        for (size_t i = 0; i < rule.size(); ++i) {
            if (is_end(rule[i])) {
                is_first = true;
            } else if (rule[i].type == LLAMA_GRETYPE_RULE_REF && is_first) {
                first.push_back({rule[i].value, is_end(rule[i + 1])});
                is_first = may_be_empty_[rule[i].value];
            } else {
                is_first = false;
            }
        }
        return first;
    }

    std::string name_of(uint32_t rule) const {
        const auto & ids = parser_.symbol_ids;
        const auto found =
            std::find_if(ids.begin(), ids.end(), [&](const auto & known) { return known.second == rule; });
        return found != ids.end() ? found->first : std::to_string(rule);
    }

    const llama_grammar_parser & parser_;
    const std::vector<bool> may_be_empty_;
    std::vector<Known> known_;
    std::vector<uint32_t> open_;  // in the order of discovery
    size_t n_seen_ = 0;
};

}  // namespace

void check_gbnf_text(const std::string & gbnf) {
    // The parser takes a character's length from its first byte, so an invalid byte would hide a quote from it.
    Utf8Assembler utf8;
    if (utf8.push(gbnf) + utf8.finish() != gbnf) {
        throw refused("the text is not valid UTF-8, or has a NUL");
    }
    SizeCheck(gbnf).run();
}

void check_gbnf_rules(const llama_grammar_parser & parser) {
    if (parser.rules.size() > max_rules) {
        refuse_count((std::to_string(parser.rules.size()) + " rules").c_str(), max_rules);
    }
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw refused("rule \"" + name + "\" is used and not defined");
        }
    }
    LeftRecursionCheck(parser).run();
}

}  // namespace eliza
