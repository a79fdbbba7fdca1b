// Stop strings: texts that end a generation, even if several tokens spell them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace eliza {

// Finds texts in generated text that comes in pieces.
class StopTexts {
public:
    // Replaces the texts. They must not be empty.
    void set(std::vector<std::string> texts) {
        texts_ = std::move(texts);
        longest_ = 0;
        for (const std::string & text : texts_) {
            longest_ = std::max(longest_, text.size());
        }
        forget();
    }

    // Adds a piece. Returns true if the piece completes one of the texts; the next text then begins after the piece.
    bool push(std::string_view piece) {
        if (texts_.empty()) {
            return false;
        }
        end_ += piece;
        if (std::any_of(texts_.begin(), texts_.end(),
                        [&](const std::string & text) { return end_.find(text) != std::string::npos; })) {
            forget();
            return true;
        }
        end_.erase(0, end_.size() - std::min(end_.size(), longest_ - 1));
        return false;
    }

    // Forgets the pieces so far.
    void forget() { end_.clear(); }

private:
    std::vector<std::string> texts_;
    size_t longest_ = 0;
    std::string end_;  // of the pieces so far; shorter than the longest text
};

}  // namespace eliza
