#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace eliza {

// Finds stop strings in generated text, even if several tokens spell one of them.
class StopStrings {
public:
    // Replaces the strings. They must not be empty.
    void set(std::vector<std::string> strings) {
        strings_ = std::move(strings);
        longest_ = 0;
        for (const std::string & string : strings_) {
            longest_ = std::max(longest_, string.size());
        }
        forget();
    }

    bool is_empty() const { return strings_.empty(); }

    // Adds the text of a token. Returns true if this text completes a stop string. The search then begins again with
    // the next token.
    bool push(std::string_view text) {
        if (strings_.empty()) {
            return false;
        }
        end_ += text;
        if (std::any_of(strings_.begin(), strings_.end(),
                        [&](const std::string & string) { return end_.find(string) != std::string::npos; })) {
            forget();
            return true;
        }
        end_.erase(0, end_.size() - std::min(end_.size(), longest_ - 1));
        return false;
    }

    // Returns true if `text` equals a stop string.
    bool contains(std::string_view text) const {
        return std::find(strings_.begin(), strings_.end(), text) != strings_.end();
    }

    // Forgets the text so far.
    void forget() { end_.clear(); }

private:
    std::vector<std::string> strings_;
    size_t longest_ = 0;
    std::string end_;  // of the text so far; shorter than the longest string
};

}  // namespace eliza
