#include "fuzz_target.h"
#include "grammar/states_grammar.h"
#include "llama-cpp.h"

namespace {

const llama_vocab * vocab() {
    static const llama_model_ptr model([] {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        return llama_model_load_from_file(ELIZA_TEST_MODEL, params);
    }());
    return llama_model_get_vocab(model.get());
}

}  // namespace

// The mask must agree with the single tokens, allowed tokens can be accepted, and a call that exceeded a limit can be
// repeated.
void eliza::fuzz::run(std::string_view input) {
    static const auto vocabulary = std::make_shared<const GrammarVocabulary>(
        vocab(), small_vocabulary(), std::vector<llama_token>{267}, /*with_controls=*/false);
    GrammarLimits limits;
    limits.n_steps = 20000;
    if (input.size() % 2 == 0) limits.n_bytes_kept = 0;  // drop everything after every token
    StatesGrammar grammar(vocabulary, std::string(input), limits);
    for (size_t step = 0; step < 12; ++step) {
        SharedMask mask;
        try {
            mask = grammar.mask();
        } catch (const Error &) {
            mask = grammar.mask();
        }
        std::vector<Token> legal = mask->tokens.tokens();
        for (Token token = 0; token < static_cast<Token>(vocabulary->n_vocab()); token += 5) {
            require(grammar.allows(token) == mask->tokens.contains(static_cast<size_t>(token)));
        }
        if (!legal.empty() && vocabulary->is_end(legal.back())) legal.pop_back();
        if (legal.empty()) break;
        grammar.accept(legal[(step * 31 + input.size()) % legal.size()]);
        require(grammar.in_step());
    }
}
