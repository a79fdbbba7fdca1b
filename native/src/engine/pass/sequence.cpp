#include "engine/pass/sequence.h"

#include <utility>

namespace eliza {

Sequence::Sequence(std::shared_ptr<Decoder> decoder, const SlotWish & slot, CancelFlag & cancelled)
    : decoder_(std::move(decoder)), slot_(decoder_->cache().slots().acquire(slot, cancelled)), cancelled_(cancelled) {}

Sequence::~Sequence() {
    decoder_->queue().leave(slot_);
    decoder_->cache().slots().release(slot_);
}

void Sequence::append(const llama_token * tokens, size_t n) {
    if (n == 0) {
        return;
    }
    appended_from_ = tokens_.size();
    tokens_.insert(tokens_.end(), tokens, tokens + n);
    slot_.n_wanted = tokens_.size();
    forget_outputs();
}

void Sequence::append_prompt(const llama_token * tokens, size_t n) {
    append(tokens, n);
    reads_prompt_ = true;
}

void Sequence::append(llama_token token) {
    if (n_ahead() == 0 || token != ahead_->tokens[ahead_->n_appended]) {
        append(&token, 1);
        return;
    }
    tokens_.push_back(token);  // first, because it can fail
    std::vector<float> & row = ahead_->rows[ahead_->n_appended++];
    forget_row();
    n_decoded_ = tokens_.size();
    logits_.swap(row);
    has_logits_ = true;
}

void Sequence::truncate(size_t n) {
    if (n < tokens_.size()) {
        tokens_.resize(n);
        slot_.n_wanted = n;
        n_decoded_ = std::min(n_decoded_, n);
        forget_outputs();
    }
}

void Sequence::forget_outputs() {
    forget_row();
    ahead_.reset();
}

void Sequence::forget_row() {
    has_logits_ = false;
    hidden_.reset();
}

// Fills in a request for the row after the last token.
void Sequence::ask_for_row(PassRequest & request) {
    request.text = tokens_.data();
    request.n_text = tokens_.size();
    request.n_known = n_decoded_;
    request.appended_from = appended_from_;
    request.n_rows = 1;
    if (states_ != nullptr && states_->from_ < states_->end_) {
        ask_for_states(request, states_->from_, states_->layers_);
        request.on_state = [this](size_t at, int32_t layer, const float * values) {
            states_->on_state_(at, layer, values);
            states_->from_ = layer == states_->layers_.back() ? at + 1 : at;
        };
    }
}

void Sequence::ask_for_states(PassRequest & request, size_t from, const std::vector<int32_t> & layers) const {
    request.layers = layers;
    request.states_from = from;
    request.wants_output_states = layers.back() == llama_model_n_layer(decoder_->model().get());
}

Sequence::States::States(Sequence & sequence, size_t from, const std::vector<int32_t> & layers, OnState on_state)
    : sequence_(sequence), layers_(layers), on_state_(std::move(on_state)), end_(sequence.tokens_.size()), from_(from) {
    sequence.forget_outputs();
    sequence.n_decoded_ = std::min(sequence.n_decoded_, from);
    sequence.states_ = this;
}

void Sequence::run(PassRequest & request) {
    if (on_pass_ && request.tree == nullptr) {
        request.may_share = false;
        request.on_pass = [&](size_t begin, size_t end) { on_pass_(request.text, begin, end); };
    }
    request.reads_prompt = std::exchange(reads_prompt_, false);
    decoder_->queue().run(request);
    n_decoded_ = tokens_.size();
}

void Sequence::settle_forced(const Options & options) {
    if (options.strategy != Strategy::token_by_token) {
        count_forced();
        return;
    }
    logits();
    ++counts_.tokens_forced;
}

void Sequence::decode(Rows rows, const Progress & progress) {
    if (!has_undecoded()) {
        return;
    }
    PassRequest wanted(slot_, cancelled_, counts_);
    ask_for_row(wanted);
    wanted.rows = rows;
    if (progress) {
        wanted.progress = [&](float fraction) { progress("prefill", fraction); };
    }
    wanted.on_row = [&](int32_t, const LogitsRow & row) { keep(row); };
    run(wanted);
}

void Sequence::decode_rows(size_t n, const std::function<void(size_t i, const LogitsRow & row)> & on_row) {
    PassRequest wanted(slot_, cancelled_, counts_);
    ask_for_row(wanted);
    wanted.n_rows = n;
    wanted.on_row = [&](int32_t place, const LogitsRow & row) {
        const size_t i = n - static_cast<size_t>(-place);
        on_row(i, row);
        if (i + 1 == n) {
            keep(row);
        }
    };
    run(wanted);
}

void Sequence::read_states(const llama_token * tokens, size_t n, size_t n_kept, size_t from,
                           const std::vector<int32_t> & layers, const OnState & on_state) {
    PassRequest wanted(slot_, cancelled_, counts_);
    wanted.text = tokens;
    wanted.n_text = n;
    wanted.rows = Rows::some;
    ask_for_states(wanted, from, layers);
    wanted.n_complete = wanted.wants_output_states ? 0 : n_kept;
    wanted.on_state = on_state;
    wanted.reads_prompt = true;
    run_with_ahead(n, [&] { decoder_->queue().run(wanted); });
    slot_.n_wanted = 0;
}

// Runs a request for `n` tokens, which are more than the sequence has. After an error the sequence needs only its own.
void Sequence::run_with_ahead(size_t n, const std::function<void()> & run_request) {
    slot_.n_wanted = n;
    try {
        run_request();
    } catch (...) {
        slot_.n_wanted = tokens_.size();
        throw;
    }
}

void Sequence::decode_each(const std::function<bool(const float * logits)> & choose) {
    PassRequest wanted(slot_, cancelled_, counts_);
    ask_for_row(wanted);
    bool continues = false;
    wanted.on_row = [&](int32_t, const LogitsRow & row) {
        n_decoded_ = tokens_.size();
        continues = choose(row.whole());
    };
    wanted.continues = [&] {
        if (continues) {
            ask_for_row(wanted);
        }
        return continues;
    };
    wanted.reads_prompt = std::exchange(reads_prompt_, false);
    decoder_->queue().run(wanted);
}

// Keeps the row after the last token.
void Sequence::keep(const LogitsRow & row) {
    if (row.hidden() != nullptr) {
        hidden_ = *row.hidden();
    } else {
        logits_.assign(row.whole(), row.whole() + decoder_->model().n_vocab());
        has_logits_ = true;
    }
}

const float * Sequence::logits() {
    decode(Rows::whole);
    if (!has_logits_) {
        PassRequest wanted(slot_, cancelled_, counts_);
        wanted.kind = PassRequest::Kind::logits;
        wanted.hidden = &*hidden_;
        wanted.logits = &logits_;
        decoder_->queue().run(wanted);
        has_logits_ = true;
    }
    return logits_.data();
}

LogitsRow Sequence::row_of_few(const Options & options) {
    if (options.restricts_head() && decoder_->runner().head().can_stop()) {
        decode(Rows::some);
        return row();
    }
    return LogitsRow(logits());
}

LogitsRow Sequence::row() {
    return hidden_ && !has_logits_ ? LogitsRow(decoder_->runner().head(), *hidden_) : LogitsRow(logits());
}

void Sequence::decode_tree(const TreeBatch & tree, Rows rows, bool wants_last,
                           const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                           const std::function<int32_t()> & kept) {
    if (!has_undecoded()) {
        drop_ahead();
    }
    PassRequest wanted(slot_, cancelled_, counts_);
    ask_for_row(wanted);
    wanted.n_rows = wants_last ? 1 : 0;
    wanted.tree = &tree;
    wanted.rows = rows;
    wanted.on_row = on_row;
    wanted.kept = kept;
    run(wanted);
}

void Sequence::decode_ahead(const std::vector<llama_token> & ahead) {
    std::vector<llama_token> text = tokens_;
    text.insert(text.end(), ahead.begin(), ahead.end());
    std::vector<float> logits;
    std::vector<std::vector<float>> rows;
    PassRequest wanted(slot_, cancelled_, counts_);
    ask_for_row(wanted);
    wanted.text = text.data();
    wanted.n_text = text.size();
    wanted.n_rows = ahead.size() + 1;
    wanted.on_row = [&](int32_t, const LogitsRow & row) {
        rows.emplace_back(row.whole(), row.whole() + decoder_->model().n_vocab());
    };
    run_with_ahead(text.size(), [&] { run(wanted); });
    logits_ = std::move(rows.front());
    rows.erase(rows.begin());
    has_logits_ = true;
    ahead_ = Ahead{ahead, std::move(rows)};
}

// Gives up the tokens that were decoded ahead.
void Sequence::drop_ahead() {
    ahead_.reset();
    slot_.n_wanted = tokens_.size();
}

std::vector<uint8_t> Sequence::copy_state() {
    std::vector<uint8_t> state;
    while (state.empty()) {
        if (n_decoded_ < tokens_.size()) {
            decode(Rows::some);
        }
        drop_ahead();
        run_alone([&] {
            if (decoder_->cache().truncate(slot_, tokens_.size()) == tokens_.size()) {
                state = decoder_->cache().copy_state(slot_);
            } else {  // the cache could not drop the tokens that were decoded ahead, and is now empty
                forget_outputs();
                n_decoded_ = 0;
            }
        });
    }
    return state;
}

void Sequence::restore_state(std::vector<llama_token> tokens, const std::vector<uint8_t> & state) {
    run_alone([&] {
        try {
            decoder_->cache().restore_state(slot_, state, tokens);
        } catch (...) {
            forget_outputs();
            n_decoded_ = 0;  // the tokens are decoded again when logits are needed
            throw;
        }
    });
    tokens_ = std::move(tokens);  // a copy could fail after the cells were replaced
    slot_.n_wanted = tokens_.size();
    appended_from_ = 0;
    n_decoded_ = tokens_.size();
    forget_outputs();
}

}  // namespace eliza
