#include "byte_trie/byte_trie.h"

#include <algorithm>
#include <string>

#include "error.h"

namespace eliza {
namespace {

// Sorts tokens by their text; tokens with the same text by number. Comparing the first 8 bytes as one integer settles
// most comparisons without reading the strings.
std::vector<Token> sort_by_text(const std::vector<std::string_view> & texts) {
    struct Entry {
        uint64_t beginning;
        Token token;
    };
    std::vector<Entry> entries;
    entries.reserve(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].empty()) {
            continue;
        }
        uint64_t beginning = 0;
        for (size_t k = 0; k < 8; ++k) {
            beginning = beginning << 8 | (k < texts[i].size() ? static_cast<uint8_t>(texts[i][k]) : 0u);
        }
        entries.push_back({beginning, static_cast<Token>(i)});
    }
    std::sort(entries.begin(), entries.end(), [&](const Entry & a, const Entry & b) {
        if (a.beginning != b.beginning) {
            return a.beginning < b.beginning;
        }
        const int order = texts[static_cast<size_t>(a.token)].compare(texts[static_cast<size_t>(b.token)]);
        return order != 0 ? order < 0 : a.token < b.token;
    });
    std::vector<Token> tokens(entries.size());
    std::transform(entries.begin(), entries.end(), tokens.begin(), [](const Entry & entry) { return entry.token; });
    return tokens;
}

}  // namespace

ByteTrie::ByteTrie(const std::vector<std::string_view> & texts) {
    constexpr size_t max_tokens = (size_t(1) << 24) - 1;
    if (texts.size() > max_tokens) {
        throw invalid_argument("expected a vocabulary of at most " + std::to_string(max_tokens) + " tokens, got " +
                               std::to_string(texts.size()));
    }
    size_t total = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].size() > max_token_bytes) {
            throw invalid_argument("token " + std::to_string(i) + " has " + std::to_string(texts[i].size()) +
                                   " bytes, beyond the limit of " + std::to_string(max_token_bytes));
        }
        total += texts[i].size();
        longest_text_ = std::max(longest_text_, texts[i].size());
    }
    texts_.reserve(total);
    text_begin_.reserve(texts.size() + 1);
    for (const std::string_view text : texts) {
        text_begin_.push_back(static_cast<uint32_t>(texts_.size()));
        texts_ += text;
    }
    text_begin_.push_back(static_cast<uint32_t>(texts_.size()));

    add_nodes(sort_by_text(texts));
    for (uint32_t node = 1; node < nodes_.size(); node += nodes_[node].subtree_size()) {
        root_child_[nodes_[node].byte()] = node;
    }
    std::sort(twins_.begin(), twins_.end());
}

void ByteTrie::add_nodes(const std::vector<Token> & by_text) {
    const auto none = static_cast<uint32_t>(n_vocab());
    nodes_.emplace_back(uint8_t(0), none);
    std::vector<uint32_t> path = {0};  // the nodes from the root to the node added last
    std::string_view last;
    Token last_token = -1;
    for (const Token token : by_text) {
        const std::string_view bytes = text(token);
        if (bytes == last) {
            twins_.push_back({last_token, token});
            continue;
        }
        const auto shared = std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end()).first;
        const auto n_shared = static_cast<size_t>(shared - bytes.begin());
        close_nodes(path, n_shared);
        for (size_t i = n_shared; i < bytes.size(); ++i) {
            path.push_back(static_cast<uint32_t>(nodes_.size()));
            nodes_.emplace_back(static_cast<uint8_t>(bytes[i]),
                                i + 1 == bytes.size() ? static_cast<uint32_t>(token) : none);
        }
        if (nodes_.size() > Node::max_nodes) {
            throw invalid_argument("the vocabulary needs more than " + std::to_string(Node::max_nodes) + " nodes");
        }
        last = bytes;
        last_token = token;
    }
    close_nodes(path, 0);
    nodes_[0].size_and_parents_ = static_cast<uint32_t>(nodes_.size());
}

// Completes all nodes on the path below `depth`. The next node will be at depth + 1.
void ByteTrie::close_nodes(std::vector<uint32_t> & path, size_t depth) {
    while (path.size() - 1 > depth) {
        const auto n_parents = static_cast<uint32_t>(path.size() - 1 - depth);
        const auto size = static_cast<uint32_t>(nodes_.size()) - path.back();
        nodes_[path.back()].size_and_parents_ = n_parents << Node::size_bits | size;
        path.pop_back();
    }
}

uint32_t ByteTrie::child(uint32_t node, uint8_t byte) const {
    if (node == 0) {
        return root_child_[byte];
    }
    const uint32_t end = node + nodes_[node].subtree_size();
    for (uint32_t child = node + 1; child < end; child += nodes_[child].subtree_size()) {
        if (nodes_[child].byte() == byte) {
            return child;
        }
    }
    return 0;
}

}  // namespace eliza
