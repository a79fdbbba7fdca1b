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

namespace eliza {
namespace {

constexpr size_t max_group_depth = 256;
constexpr size_t max_rules = 10000;
constexpr size_t max_elements = 1000000;     // characters, references and ranges, repetitions written out
constexpr size_t max_first_depth = 500;      // rules that begin with one another
constexpr size_t max_first_steps = 1000000;  // ways in which they do, all of which llama.cpp tries

Error refused(const std::string & what) { return invalid_argument("gbnf_grammar: " + what); }

[[noreturn]] void refuse_count(const char * what, size_t limit) {
    throw refused(std::string(what) + " (repetitions count) are more than the limit of " + std::to_string(limit));
}

// One walk over the text, which counts what the parser would make of it.
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
        } else if (c == '(') {
            if (++depth_ > max_group_depth) {
                throw refused("groups are nested deeper than " + std::to_string(max_group_depth));
            }
            ++i_;
        } else if (c == ')') {
            depth_ -= depth_ > 0 ? 1 : 0;
            ++i_;
            count_symbol(1);  // the rule that the group becomes
        } else if (c == '*' || c == '+' || c == '?') {
            repeat(c == '+' ? 1 : 0, c == '?' ? 1 : no_most);
            ++i_;
        } else if (c == '{') {
            read_counts();
        } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-') {
            while (i_ < text_.size() &&
                   (std::isalnum(static_cast<unsigned char>(text_[i_])) != 0 || text_[i_] == '-')) {
                ++i_;
            }
            count_symbol(1);
        } else {
            ++i_;
            if (c == '.' || c == '>') {
                count_symbol(1);
            }
        }
    }

    // Returns how many characters there are up to the end of a literal or class, at least 1.
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
            return;  // for the parser to refuse
        }
        ++i_;
        if (*most < *least) {
            throw refused("the repetition " + text_.substr(begin, std::min<size_t>(i_ - begin, 40)) +
                          " ends before it begins");
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

    // The parser writes the symbol out `least` times, and a rule for each time more that it may come.
    void repeat(size_t least, size_t most) {
        constexpr size_t unbounded = 2000;  // more than that is as good as no limit to the parser
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
    size_t last_ = 0;  // elements of what a repetition would repeat
    size_t n_elements_ = 0;
    size_t n_rules_ = 0;
};

bool is_end(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

bool may_be_empty(const llama_grammar_rule & rule) {
    bool at_start = true;
    for (const llama_grammar_element & element : rule) {
        if (is_end(element) && at_start) {
            return true;
        }
        at_start = is_end(element);
    }
    return false;
}

// Goes through all rules behind those they begin with, without recursion.
class FirstRulesCheck {
public:
    explicit FirstRulesCheck(const llama_grammar_parser & parser) : parser_(parser), known_(parser.rules.size()) {
        for (size_t i = 0; i < known_.size(); ++i) {
            known_[i].may_be_empty = eliza::may_be_empty(parser.rules[i]);
        }
    }

    void run() {
        size_t n_steps = 0;
        for (uint32_t rule = 0; rule < known_.size(); ++rule) {
            follow(rule);
            n_steps += known_[rule].n_steps;
            if (n_steps > max_first_steps) {
                throw refused("its rules begin with one another in more than " + std::to_string(max_first_steps) +
                              " ways");
            }
        }
    }

private:
    struct Known {
        enum { unseen, open, done } state = unseen;
        bool may_be_empty = false;
        size_t depth = 0;    // of the longest chain of rules that begin with one another, this one included
        size_t n_steps = 0;  // that a search takes which remembers nothing
    };
    struct Visit {
        uint32_t rule;
        std::vector<uint32_t> first;
        size_t next = 0;
    };

    void follow(uint32_t root) {
        if (known_[root].state == Known::done) {
            return;
        }
        std::vector<Visit> path;
        enter(path, root);
        while (!path.empty()) {
            Visit & visit = path.back();
            if (visit.next < visit.first.size()) {
                const uint32_t rule = visit.first[visit.next++];
                if (known_[rule].state == Known::open) {
                    throw refused("left recursion: rule \"" + name_of(rule) + "\" begins with itself");
                }
                if (known_[rule].state == Known::unseen) {
                    enter(path, rule);
                }
                continue;
            }
            leave(visit);
            path.pop_back();
        }
    }

    void enter(std::vector<Visit> & path, uint32_t rule) {
        known_[rule].state = Known::open;
        path.push_back({rule, first_rules(parser_.rules[rule])});
    }

    // The rules that a rule may begin with, as llama.cpp's search for left recursion goes through them.
    std::vector<uint32_t> first_rules(const llama_grammar_rule & rule) const {
        std::vector<uint32_t> first;
        bool is_first = true;
        for (const llama_grammar_element & element : rule) {
            if (is_end(element)) {
                is_first = true;
            } else if (element.type == LLAMA_GRETYPE_RULE_REF && is_first) {
                first.push_back(element.value);
                is_first = known_[element.value].may_be_empty;
            } else {
                is_first = false;
            }
        }
        return first;
    }

    void leave(const Visit & visit) {
        Known & known = known_[visit.rule];
        known.state = Known::done;
        known.depth = known.n_steps = 1;
        for (const uint32_t rule : visit.first) {
            known.depth = std::max(known.depth, known_[rule].depth + 1);
            known.n_steps = std::min(known.n_steps + known_[rule].n_steps, max_first_steps + 1);
        }
        if (known.depth > max_first_depth) {
            throw refused("more than " + std::to_string(max_first_depth) + " rules begin with one another, from \"" +
                          name_of(visit.rule) + "\" on");
        }
    }

    std::string name_of(uint32_t rule) const {
        const auto & ids = parser_.symbol_ids;
        const auto found =
            std::find_if(ids.begin(), ids.end(), [&](const auto & known) { return known.second == rule; });
        return found != ids.end() ? found->first : std::to_string(rule);
    }

    const llama_grammar_parser & parser_;
    std::vector<Known> known_;
};

}  // namespace

void check_gbnf_text(const std::string & gbnf) { SizeCheck(gbnf).run(); }

void check_gbnf_rules(const llama_grammar_parser & parser) {
    if (parser.rules.size() > max_rules) {
        refuse_count((std::to_string(parser.rules.size()) + " rules").c_str(), max_rules);
    }
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= parser.rules.size() || parser.rules[id].empty()) {
            throw refused("rule \"" + name + "\" is used and not defined");
        }
    }
    FirstRulesCheck(parser).run();
}

}  // namespace eliza
