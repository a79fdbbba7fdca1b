#include "token_trie/payload.h"

#include "fuzz_target.h"

// Every leaf of an accepted payload can be reached.
void eliza::fuzz::run(std::string_view input) {
    const Payload payload = parse_payload(input, 1000);
    const TokenTrie trie(payload.leaves);
    for (const Leaf & leaf : payload.leaves) {
        int32_t node = 0;
        for (const Token token : leaf.tokens) {
            require(token >= 0 && token < 1000);
            node = trie.child(static_cast<TokenTrie::Node>(node), token);
            require(node != TokenTrie::none);
        }
        require(trie.leaf(static_cast<TokenTrie::Node>(node)) != TokenTrie::none);
    }
}
