#include "token_trie/rtkt.h"

#include "fuzz_target.h"
#include "token_trie/token_trie.h"

void eliza::fuzz::run(std::string_view input) {
    const Payload payload = parse_rtkt(input, 1000);
    const TokenTrie trie(payload.leaves);
    require(trie.n_leaves() == payload.leaves.size());
}
