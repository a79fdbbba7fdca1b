#include "token_trie/rtkt.h"

#include <cstdint>
#include <string>
#include <vector>

#include "error.h"

namespace eliza {
namespace {

constexpr std::string_view magic = "RTKT";
constexpr uint32_t version = 1;
constexpr size_t node_bytes = 9;  // the size of a node without children

// The limit for the total length of all leaves. Without it, a small payload could use much memory: if a leaf ends at
// every node of a chain, the total length grows with the square of the chain's length.
constexpr size_t max_leaf_tokens = size_t(1) << 24;

class Reader {
public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    uint32_t u32(const char * what) {
        const std::string_view four = take(4, what);
        uint32_t value = 0;
        for (size_t i = 4; i-- > 0;) {
            value = value << 8 | static_cast<unsigned char>(four[i]);
        }
        return value;
    }
    uint8_t u8(const char * what) { return static_cast<uint8_t>(take(1, what)[0]); }

    std::string_view take(size_t n, const char * what) {
        if (n > left()) {
            throw error(std::string(what) + " needs " + std::to_string(n) + " bytes, " + std::to_string(left()) +
                        " are left");
        }
        at_ += n;
        return bytes_.substr(at_ - n, n);
    }
    size_t left() const { return bytes_.size() - at_; }

    Error error(const std::string & text) const {
        return invalid_argument("the RTKT payload is malformed at byte " + std::to_string(at_) + ": " + text);
    }

private:
    std::string_view bytes_;
    size_t at_ = 0;
};

class TreeReader {
public:
    TreeReader(std::string_view bytes, int32_t n_vocab) : in_(bytes), n_vocab_(n_vocab) {}

    Payload read() {
        in_.take(magic.size(), "the magic");
        if (const uint32_t found = in_.u32("the version"); found != version) {
            throw in_.error("expected version " + std::to_string(version) + ", got " + std::to_string(found));
        }
        in_.take(in_.u32("the length of the path"), "the path");
        n_nodes_ = in_.u32("the number of nodes");
        if (n_nodes_ == 0 || n_nodes_ > in_.left() / node_bytes) {
            throw in_.error(std::to_string(n_nodes_) + " nodes do not fit the " + std::to_string(in_.left()) +
                            " bytes that are left");
        }
        for (uint32_t node = 0; node < n_nodes_; ++node) {
            read_node(node);
        }
        if (!way_.empty()) {
            throw in_.error("node " + std::to_string(way_.back().children.back()) +
                            " is listed as a child, but the payload does not contain it");
        }
        if (in_.left() > 0) {
            throw in_.error(std::to_string(in_.left()) + " bytes follow the last node");
        }
        return std::move(payload_);
    }

private:
    // A node on the path to the current node.
    struct Open {
        std::vector<uint32_t> children;  // the children that were not read yet, in reverse order
        Token last_child = -1;
    };

    void read_node(uint32_t node) {
        const std::string name = "node " + std::to_string(node);
        const auto token = static_cast<int32_t>(in_.u32("a token"));
        if (node == 0) {
            if (token != -1) {
                throw in_.error("the root: expected token -1, got " + std::to_string(token));
            }
        } else {
            enter_parent(node, name, token);
            tokens_.push_back(token);
        }
        const uint8_t terminal = in_.u8("a terminal mark");
        const uint32_t n_children = in_.u32("a number of children");
        if (terminal > 1) {
            throw in_.error(name + ": expected the terminal mark 0 or 1, got " + std::to_string(terminal));
        }
        if (terminal == (node == 0 ? 1 : 0) && n_children == 0) {
            throw in_.error(node == 0 ? "the root ends a leaf, which has no tokens" : name + " leads to no leaf");
        }
        if (terminal == 1) {
            add_leaf(node);
        }
        read_children(node, name, n_children);
    }

    // In depth-first order, this node must be the next child of the last node on the path.
    void enter_parent(uint32_t node, const std::string & name, Token token) {
        if (way_.empty() || way_.back().children.back() != node) {
            throw in_.error("nodes must be in depth-first order: expected " +
                            (way_.empty() ? "no more nodes" : "node " + std::to_string(way_.back().children.back())) +
                            ", got " + name);
        }
        Open & parent = way_.back();
        if (token < 0 || (n_vocab_ > 0 && token >= n_vocab_)) {
            throw in_.error(name + ": token " + std::to_string(token) + " is outside the vocabulary" +
                            (n_vocab_ > 0 ? " of " + std::to_string(n_vocab_) : ""));
        }
        if (token <= parent.last_child) {
            throw in_.error(name + ": expected a token above " + std::to_string(parent.last_child) +
                            ", its previous sibling's, got " + std::to_string(token));
        }
        parent.last_child = token;
        parent.children.pop_back();
    }

    void add_leaf(uint32_t node) {
        if (node == 0) {
            throw in_.error("the root ends a leaf, which has no tokens");
        }
        n_leaf_tokens_ += tokens_.size();
        if (n_leaf_tokens_ > max_leaf_tokens) {
            throw in_.error("all leaves together have more than " + std::to_string(max_leaf_tokens) + " tokens");
        }
        payload_.leaves.push_back({std::to_string(payload_.leaves.size()), tokens_});
    }

    void read_children(uint32_t node, const std::string & name, uint32_t n_children) {
        if (n_children > in_.left() / 4) {
            throw in_.error(name + ": " + std::to_string(n_children) + " children do not fit the " +
                            std::to_string(in_.left()) + " bytes that are left");
        }
        Open open;
        open.children.resize(n_children);
        for (size_t i = n_children; i-- > 0;) {
            const uint32_t child = in_.u32("a child");
            if (child <= node || child >= n_nodes_) {
                throw in_.error(name + ": child " + std::to_string(child) + " is not the index of a later node");
            }
            open.children[i] = child;
        }
        way_.push_back(std::move(open));
        // Go back to the last node with unread children.
        while (!way_.empty() && way_.back().children.empty()) {
            way_.pop_back();
            if (!tokens_.empty()) {
                tokens_.pop_back();
            }
        }
    }

    Reader in_;
    const int32_t n_vocab_;
    uint32_t n_nodes_ = 0;
    std::vector<Open> way_;
    std::vector<Token> tokens_;  // the tokens from the root to the current node
    size_t n_leaf_tokens_ = 0;
    Payload payload_;
};

}  // namespace

bool is_rtkt(std::string_view bytes) { return bytes.substr(0, magic.size()) == magic; }

Payload parse_rtkt(std::string_view bytes, int32_t n_vocab) { return TreeReader(bytes, n_vocab).read(); }

}  // namespace eliza
