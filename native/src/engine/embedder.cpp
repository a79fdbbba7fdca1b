#include "engine/embedder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "engine/pass/batch.h"
#include "error.h"
#include "json_input.h"
#include "llama-ext.h"
#include "llama-model.h"
#include "log.h"

namespace eliza {
namespace {

// A context for this many tokens is kept. Longer input gets a larger context, which the next shorter input frees.
constexpr size_t kept_room = 512;

// Texts that share a pass: without a KV cache, the costs of attention grow with the square of the pass.
constexpr size_t max_texts = 32;
constexpr size_t room_of_texts = 256;  // tokens

// llama.cpp stores a row of logits for every token of a pass that computes embeddings. This limits their memory.
constexpr size_t most_row_bytes = size_t{64} << 20;

std::vector<float> unit_vector(const std::vector<float> & values) {
    const double sum = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    if (!(sum > 0.0) || !std::isfinite(sum)) {
        throw Error(ELIZA_ERR_FFI_FAULT, "the model's embedding is zero or not finite");
    }
    std::vector<float> unit(values.size());
    std::transform(values.begin(), values.end(), unit.begin(),
                   [&](float value) { return static_cast<float>(value / std::sqrt(sum)); });
    return unit;
}

// Returns how many options the roles mark: runs of tokens of the same role. Each question comes before its options.
size_t count_options(const int32_t * roles, size_t n) {
    size_t n_options = 0;
    int32_t last = LLAMA_DECISION_ORDER_NONE;  // the role of the last question or option
    for (size_t i = 0; i < n; ++i) {
        if (roles[i] < LLAMA_DECISION_ORDER_NONE || roles[i] > LLAMA_DECISION_ORDER_OPTION) {
            throw invalid_argument(at("roles", i) + ": expected 0 to 4, got " + std::to_string(roles[i]));
        }
        if (roles[i] == LLAMA_DECISION_ORDER_NONE || (i > 0 && roles[i] == roles[i - 1])) {
            continue;
        }
        const bool is_option = roles[i] == LLAMA_DECISION_ORDER_OPTION;
        const bool has_question = last != LLAMA_DECISION_ORDER_NONE;
        if (is_option ? !has_question : has_question && last != LLAMA_DECISION_ORDER_OPTION) {
            throw invalid_argument(
                at("roles", i) + ": expected " +
                (is_option ? "a question before its options" : "options of the last question before another question"));
        }
        last = roles[i];
        n_options += is_option ? 1 : 0;
    }
    if (last != LLAMA_DECISION_ORDER_OPTION) {
        throw invalid_argument("roles: expected a question with options");
    }
    return n_options;
}

}  // namespace

Embedder::Embedder(std::shared_ptr<Model> model, std::shared_ptr<ComputeThreads> threads)
    : model_(std::move(model)),
      threads_(std::move(threads)),
      states_(llama_model_n_layer(model_->get()), llama_model_n_embd(model_->get())) {}

size_t Embedder::most_tokens() const { return static_cast<size_t>(llama_model_n_ctx_train(model_->get())); }

// Input can be split into several passes if each token depends only on earlier tokens and the context keeps those.
bool Embedder::takes_passes() {
    if (!takes_passes_ && model_->is_causal()) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = params.n_batch = params.n_ubatch = 32;
        params.no_perf = true;
        takes_passes_ = llama_get_memory(model_->new_context(params, "for embeddings").get()) != nullptr;
    }
    return takes_passes_.value_or(false);
}

size_t Embedder::tokens_a_pass() const {
    const size_t row_bytes = static_cast<size_t>(model_->n_vocab()) * sizeof(float);
    return std::clamp<size_t>(most_row_bytes / row_bytes, 32, kept_room);
}

Pooling Embedder::own_pooling() const {
    const Pooling pooling = model_->get()->hparams.pooling_type;
    const bool is_known =
        pooling == LLAMA_POOLING_TYPE_MEAN || pooling == LLAMA_POOLING_TYPE_CLS || pooling == LLAMA_POOLING_TYPE_LAST;
    return is_known ? pooling : LLAMA_POOLING_TYPE_MEAN;
}

// Ensures that context_ is empty, has room for a pass or a text of n_tokens tokens and uses this pooling.
void Embedder::make_context(Pooling pooling, size_t n_tokens) {
    // Rounded, because the context of a text must also take any other text of llama_n_ctx() tokens in one pass.
    const size_t room = rounded_n_ctx(static_cast<uint32_t>(std::max(n_tokens, std::min(kept_room, most_tokens()))));
    const size_t has = context_ != nullptr && pooling_ == pooling ? llama_n_ctx(context_.get()) : 0;
    if (has >= room && (has <= kept_room || room > kept_room)) {
        if (llama_memory_t memory = llama_get_memory(context_.get())) {
            llama_memory_clear(memory, true);
        }
        return;
    }
    context_.reset();
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(room);
    params.n_batch = takes_passes() ? static_cast<uint32_t>(tokens_a_pass()) : params.n_ctx;
    params.n_ubatch = params.n_batch;
    params.n_seq_max = takes_passes() ? 1 : max_texts;
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = threads_->size();
    params.embeddings = true;
    params.pooling_type = pooling;
    params.no_perf = true;
    params.abort_callback = is_cancelled;
    params.abort_callback_data = this;
    if (takes_passes()) {
        params.cb_eval = on_tensor;
        params.cb_eval_user_data = this;
    }
    context_ = model_->new_context(params, "for embeddings");
    threads_->attach_to(context_.get());
    pooling_ = pooling;
}

bool Embedder::on_tensor(ggml_tensor * tensor, bool ask, void * embedder) {
    LayerRows & states = static_cast<Embedder *>(embedder)->states_;
    return states.wants(*tensor) && (ask || states.take(*tensor));
}

void Embedder::decode(size_t n_tokens, const std::function<int32_t()> & decode_batch) {
    const LlamaErrorCapture capture;
    ComputeThreads::Turn turn(*threads_, context_.get(), model_->n_products(n_tokens, 0));
    turn.watch();
    if (const int32_t result = decode_batch(); result != 0) {
        throw capture.error(ELIZA_ERR_FFI_FAULT, "llama_decode failed with " + std::to_string(result));
    }
    llama_synchronize(context_.get());
}

void Embedder::decode(Batch & batch) {
    decode(static_cast<size_t>(batch.n_tokens()), [&] { return llama_decode(context_.get(), batch.get()); });
}

// Decodes the tokens, in as many passes as they need, and calls on_vector for each position from `first` to `end`.
//
// With `may_stop`, the passes stop after the final norm, before the output head. The first pass runs to its end and
// shows whether the output of that norm is what llama.cpp returns as the embedding.
void Embedder::each_vector(const Tokens & tokens, size_t first, size_t end, bool may_stop, const OnVector & on_vector) {
    const int32_t last_layer = llama_model_n_layer(model_->get());
    make_context(LLAMA_POOLING_TYPE_NONE, tokens.size());
    for (size_t begin = 0; begin < end;) {
        const size_t n = std::min<size_t>(llama_n_batch(context_.get()), tokens.size() - begin);
        const bool stops = may_stop && stops_before_head_.value_or(false);
        const bool compares = may_stop && !stops_before_head_.has_value();
        states_.begin_pass(stops || compares ? std::vector<int32_t>{last_layer} : std::vector<int32_t>{}, stops);
        Batch batch;
        for (size_t i = 0; i < n; ++i) {
            batch.add(tokens[begin + i], static_cast<llama_pos>(begin + i), {0}, true);
        }
        decode(batch);
        bool is_same = true;
        for (size_t i = 0; i < n; ++i) {
            const float * state = states_.row(last_layer, {n, n}, i, i);
            const float * values = stops ? state : llama_get_embeddings_ith(context_.get(), static_cast<int32_t>(i));
            if (values == nullptr) {
                throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp returned no embedding");
            }
            is_same = is_same && state != nullptr && std::equal(values, values + size(), state);
            if (const size_t position = begin + i; position >= first && position < end) {
                on_vector(position, values);
            }
        }
        if (compares) {
            stops_before_head_ = is_same;
        }
        begin += n;
    }
}

// Decodes the tokens in one pass, and calls on_vector with the score of each option from `first` to `end`.
void Embedder::each_score(const Tokens & tokens, const int32_t * roles, size_t first, size_t end,
                          const OnVector & on_vector) {
    make_context(LLAMA_POOLING_TYPE_NONE, tokens.size());
    const std::unique_ptr<llama_batch_ext, void (*)(llama_batch_ext *)> batch(llama_batch_ext_init(context_.get()),
                                                                              llama_batch_ext_free);
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto position = static_cast<llama_pos>(i);
        const int32_t entry = llama_batch_ext_add_token(batch.get(), 0, tokens[i]);
        const auto role = static_cast<llama_decision_order>(roles[i]);
        if (entry < 0 || !llama_batch_ext_set_pos(batch.get(), entry, &position) ||
            !llama_batch_ext_set_output_embd(batch.get(), entry, true) ||
            !llama_batch_ext_set_decision_order(batch.get(), entry, role)) {
            throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp rejected " + at("tokens", i));
        }
    }
    decode(tokens.size(), [&] { return llama_process(context_.get(), LLAMA_PROCESS_TYPE_DECODE, batch.get()); });
    for (size_t i = first; i < end; ++i) {
        const float * values = llama_get_embeddings_ith(context_.get(), static_cast<int32_t>(i));
        if (values == nullptr) {
            throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp returned no score");
        }
        on_vector(i, values);
    }
}

// llama.cpp pools only tokens of the same pass, so this function pools them.
std::vector<float> Embedder::pool_passes(const Tokens & tokens, Pooling pooling) {
    const size_t first = pooling == LLAMA_POOLING_TYPE_LAST ? tokens.size() - 1 : 0;
    const size_t end = pooling == LLAMA_POOLING_TYPE_CLS ? 1 : tokens.size();
    std::vector<double> sum(static_cast<size_t>(size()), 0.0);
    each_vector(tokens, first, end, /*may_stop=*/true, [&](size_t, const float * values) {
        std::transform(sum.begin(), sum.end(), values, sum.begin(), [](double a, float b) { return a + b; });
    });
    std::vector<float> mean(sum.size());
    std::transform(sum.begin(), sum.end(), mean.begin(),
                   [&](double value) { return static_cast<float>(value / static_cast<double>(end - first)); });
    return mean;
}

// Returns what llama.cpp has pooled for a sequence in the last pass.
std::vector<float> Embedder::pooled_values(llama_seq_id sequence) const {
    const float * values = llama_get_embeddings_seq(context_.get(), sequence);
    if (values == nullptr) {
        throw Error(ELIZA_ERR_FFI_FAULT, "llama.cpp returned no embedding");
    }
    const bool is_rank = pooling_ == LLAMA_POOLING_TYPE_RANK;
    return {values, values + (is_rank ? static_cast<int32_t>(llama_model_n_cls_out(model_->get())) : size())};
}

// A reranker that takes several passes reads the last token; the passes before the last only fill the cache.
std::vector<float> Embedder::rank_passes(const Tokens & tokens) {
    make_context(LLAMA_POOLING_TYPE_RANK, tokens.size());
    for (size_t begin = 0; begin < tokens.size();) {
        Batch batch;
        for (const size_t end = std::min(begin + llama_n_batch(context_.get()), tokens.size()); begin < end; ++begin) {
            batch.add(tokens[begin], static_cast<llama_pos>(begin), {0}, true);
        }
        decode(batch);
    }
    return pooled_values(0);
}

// Decodes some of the sequences in one pass.
void Embedder::pool_one_pass(const std::vector<Tokens> & sequences, size_t begin, size_t end, Pooling pooling,
                             std::vector<std::vector<float>> & out) {
    Batch batch;
    for (size_t i = begin; i < end; ++i) {
        const auto id = static_cast<llama_seq_id>(i - begin);
        for (size_t at = 0; at < sequences[i].size(); ++at) {
            batch.add(sequences[i][at], static_cast<llama_pos>(at), {id}, true);
        }
    }
    make_context(pooling, static_cast<size_t>(batch.n_tokens()));
    decode(batch);
    for (size_t i = begin; i < end; ++i) {
        out.push_back(pooled_values(static_cast<llama_seq_id>(i - begin)));
    }
}

// Returns the pooled values of each sequence.
std::vector<std::vector<float>> Embedder::pool(const std::vector<Tokens> & sequences, Pooling pooling) {
    std::vector<std::vector<float>> pooled;
    for (size_t begin = 0; begin < sequences.size();) {
        if (takes_passes()) {
            const Tokens & tokens = sequences[begin++];
            pooled.push_back(pooling == LLAMA_POOLING_TYPE_RANK ? rank_passes(tokens) : pool_passes(tokens, pooling));
            continue;
        }
        size_t end = begin + 1;
        for (size_t n = sequences[begin].size(); end < std::min(sequences.size(), begin + max_texts); ++end) {
            n += sequences[end].size();
            if (n > room_of_texts) {
                break;
            }
        }
        pool_one_pass(sequences, begin, end, pooling, pooled);
        begin = end;
    }
    return pooled;
}

bool Embedder::is_cancelled(void * embedder) {
    const CancelFlag * flag = static_cast<Embedder *>(embedder)->cancelled_;
    return (flag != nullptr && flag->is_set()) || WorkBeforeExit::must_stop();
}

// The number of tokens is checked before they are read.
void Embedder::check(const std::string & name, size_t n_tokens) const {
    if (!model_->can_embed()) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                    "llama.cpp cannot compute embeddings with the architecture " + model_->architecture());
    }
    if (n_tokens == 0) {
        throw invalid_argument(name + ": expected at least 1 token, got none");
    }
    if (n_tokens > most_tokens()) {
        throw invalid_argument(name + ": expected at most " + std::to_string(most_tokens()) + " tokens, got " +
                               std::to_string(n_tokens));
    }
}

void Embedder::require_roles(bool has_roles) const {
    if (model_->reads_roles() && !has_roles) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                    "the model only scores options of questions: it computes no embeddings, and needs roles");
    }
    if (has_roles && !model_->reads_roles()) {
        throw invalid_argument("roles: expected NULL, because models of the architecture " + model_->architecture() +
                               " do not read them");
    }
}

// Runs `work` while no other call runs.
void Embedder::run(CancelFlag & cancelled, const std::function<void()> & work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
        cancelled.throw_if_set();  // while it waited for another call
        cancelled_ = &cancelled;
        work();
    } catch (...) {
        cancelled_ = nullptr;
        context_.reset();
        cancelled.throw_if_set();
        throw;
    }
    cancelled_ = nullptr;
}

// Returns the text's tokens, or if they are too many, overlapping windows of them. Each window has the special tokens
// that the model expects at the ends of a text.
std::vector<Embedder::Tokens> Embedder::windows_of(std::string_view text) const {
    Tokens whole = model_->tokenize_whole(text, /*add_special=*/true, /*parse_special=*/false);
    if (whole.size() <= most_tokens()) {
        return {std::move(whole)};
    }
    const Tokens inner = model_->tokenize_whole(text, /*add_special=*/false, /*parse_special=*/false);
    const auto found = std::search(whole.begin(), whole.end(), inner.begin(), inner.end());
    const size_t n_special = whole.size() - inner.size();
    if (found == whole.end() || n_special >= most_tokens()) {
        return {std::move(whole)};  // which is rejected
    }
    const size_t n_window = most_tokens() - n_special, step = std::max<size_t>(1, n_window - n_window / 4);
    std::vector<Tokens> windows;
    for (size_t begin = 0;; begin += step) {
        const size_t end = std::min(begin + n_window, inner.size());
        Tokens & window = windows.emplace_back(whole.begin(), found);
        window.insert(window.end(), inner.begin() + static_cast<ptrdiff_t>(begin),
                      inner.begin() + static_cast<ptrdiff_t>(end));
        window.insert(window.end(), found + static_cast<ptrdiff_t>(inner.size()), whole.end());
        if (end == inner.size()) {
            return windows;
        }
    }
}

std::vector<std::vector<float>> Embedder::embed(const std::vector<std::string_view> & texts, Pooling pooling,
                                                LongTexts long_texts, CancelFlag & cancelled) {
    require_roles(false);
    std::vector<Tokens> sequences;
    std::vector<size_t> n_windows;
    for (size_t i = 0; i < texts.size(); ++i) {
        const size_t n_before = sequences.size();
        if (long_texts == LongTexts::in_windows) {
            std::vector<Tokens> windows = windows_of(texts[i]);
            std::move(windows.begin(), windows.end(), std::back_inserter(sequences));
        } else {
            sequences.push_back(model_->tokenize_whole(texts[i], /*add_special=*/true, /*parse_special=*/false));
        }
        n_windows.push_back(sequences.size() - n_before);
        check(texts.size() == 1 ? "text" : at("texts", i), sequences.back().size());
    }
    std::vector<std::vector<float>> pooled;
    run(cancelled,
        [&] { pooled = pool(sequences, pooling == LLAMA_POOLING_TYPE_UNSPECIFIED ? own_pooling() : pooling); });
    std::vector<std::vector<float>> embeddings;
    size_t next = 0;
    for (const size_t n : n_windows) {
        std::vector<float> sum(static_cast<size_t>(size()), 0.0f);
        for (const size_t end = next + n; next < end; ++next) {
            const auto weight = static_cast<float>(sequences[next].size());
            const std::vector<float> unit = unit_vector(pooled[next]);
            std::transform(sum.begin(), sum.end(), unit.begin(), sum.begin(),
                           [&](float a, float b) { return a + weight * b; });
        }
        embeddings.push_back(unit_vector(sum));
    }
    return embeddings;
}

// Returns the tokens of a query and a document as rerankers expect them. llama-server writes them in the same way.
Embedder::Tokens Embedder::pair_of(std::string_view query, std::string_view document) const {
    if (const char * form = llama_model_chat_template(model_->get(), "rerank")) {
        std::vector<std::pair<std::string, bool>> pieces;  // and whether a piece is from the template
        for (std::string_view rest = form; !rest.empty();) {
            const bool is_query = rest.substr(0, 7) == "{query}", is_document = rest.substr(0, 10) == "{document}";
            if (is_query || is_document) {
                pieces.emplace_back(is_query ? query : document, false);
                rest.remove_prefix(is_query ? 7 : 10);
            } else {
                const size_t next = std::min(rest.find('{', 1), rest.size());
                pieces.emplace_back(rest.substr(0, next), true);
                rest.remove_prefix(next);
            }
        }
        const auto tokens_of = [&](const std::string & text, bool parse_special) {
            return model_->tokenize_whole(text, /*add_special=*/false, parse_special);
        };
        // Only the template may contain control tokens. Otherwise the text is tokenized as a whole.
        const bool is_safe = std::all_of(pieces.begin(), pieces.end(), [&](const auto & piece) {
            return piece.second || tokens_of(piece.first, true) == tokens_of(piece.first, false);
        });
        std::string whole;
        Tokens in_pieces;
        for (const auto & [text, of_template] : pieces) {
            whole += text;
            const Tokens more = is_safe ? Tokens() : tokens_of(text, of_template);
            in_pieces.insert(in_pieces.end(), more.begin(), more.end());
        }
        return is_safe ? tokens_of(whole, true) : in_pieces;
    }
    const llama_vocab * vocab = model_->vocab();
    const llama_token eos =
        llama_vocab_eos(vocab) != LLAMA_TOKEN_NULL ? llama_vocab_eos(vocab) : llama_vocab_sep(vocab);
    Tokens tokens;
    const auto add = [&](std::string_view text) {
        const Tokens more = model_->tokenize_whole(text, /*add_special=*/false, /*parse_special=*/false);
        tokens.insert(tokens.end(), more.begin(), more.end());
    };
    const auto add_if = [&](bool wanted, llama_token token) { tokens.insert(tokens.end(), wanted ? 1 : 0, token); };
    add_if(llama_vocab_get_add_bos(vocab), llama_vocab_bos(vocab));
    add(query);
    add_if(llama_vocab_get_add_eos(vocab), eos);
    add_if(llama_vocab_get_add_sep(vocab), llama_vocab_sep(vocab));
    add(document);
    add_if(llama_vocab_get_add_eos(vocab), eos);
    return tokens;
}

std::vector<float> Embedder::rerank(std::string_view query, const std::vector<std::string_view> & documents,
                                    CancelFlag & cancelled) {
    if (model_->get()->hparams.pooling_type != LLAMA_POOLING_TYPE_RANK) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED, "the model is not a reranker: the pooling of its file is not \"rank\"");
    }
    if (model_->get()->cls == nullptr && model_->get()->cls_out == nullptr) {
        throw Error(ELIZA_ERR_BUNDLE_INVALID,
                    "the model cannot rerank: its pooling is \"rank\", but its file has no classification head (the "
                    "tensor cls or cls.output)");
    }
    std::vector<Tokens> sequences;
    for (size_t i = 0; i < documents.size(); ++i) {
        sequences.push_back(pair_of(query, documents[i]));
        check("the query with " + at("documents", i), sequences.back().size());
    }
    std::vector<std::vector<float>> pooled;
    run(cancelled, [&] { pooled = pool(sequences, LLAMA_POOLING_TYPE_RANK); });
    std::vector<float> scores;
    for (const std::vector<float> & values : pooled) {
        scores.push_back(values[0]);
    }
    return scores;
}

void Embedder::embed_tokens(const llama_token * tokens, const int32_t * roles, size_t n, const int32_t * positions,
                            size_t n_positions, float * out, CancelFlag & cancelled) {
    check("tokens", n);
    model_->check_tokens(tokens, n);
    require_roles(roles != nullptr);
    const size_t n_rows = roles == nullptr ? n : count_options(roles, n);
    if (n_positions == 0 || n_positions > n_rows) {
        throw invalid_argument("positions: expected 1 to " + std::to_string(n_rows) + ", got " +
                               std::to_string(n_positions));
    }
    for (size_t i = 0; i < n_positions; ++i) {
        const int64_t least = i == 0 ? 0 : int64_t{positions[i - 1]} + 1;
        const int64_t most = static_cast<int64_t>(n_rows) - 1;
        if (positions[i] < least || positions[i] > most) {
            throw invalid_argument("positions[" + std::to_string(i) + "]: expected " + std::to_string(least) + " to " +
                                   std::to_string(most) + ", got " + std::to_string(positions[i]));
        }
    }
    const auto first = static_cast<size_t>(positions[0]);
    const auto end = static_cast<size_t>(positions[n_positions - 1]) + 1;
    std::vector<float> rows;  // on failure, `out` is not written
    run(cancelled, [&] {
        const int32_t * wanted = positions;
        const auto on_vector = [&](size_t position, const float * values) {
            if (position == static_cast<size_t>(*wanted)) {
                rows.insert(rows.end(), values, values + size());
                ++wanted;
            }
        };
        if (roles == nullptr) {
            each_vector({tokens, tokens + n}, first, end, /*may_stop=*/false, on_vector);
        } else {
            each_score({tokens, tokens + n}, roles, first, end, on_vector);
        }
    });
    std::copy(rows.begin(), rows.end(), out);
}

}  // namespace eliza
