#include "engine/pass/sequence.h"

#include <algorithm>

namespace eliza {

Sequence::Sequence(std::shared_ptr<Decoder> decoder, int32_t slot_id, const std::string & cache_key)
    : decoder_(std::move(decoder)), slot_(decoder_->slots().acquire(slot_id, cache_key)) {}

Sequence::~Sequence() {
    decoder_->forget_logits_of(this);
    decoder_->slots().release(slot_);
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

void Sequence::append(llama_token token) {
    if (n_ahead() == 0 || token != ahead_->tokens[ahead_->n_appended]) {
        append(&token, 1);
        return;
    }
    std::vector<float> & row = ahead_->rows[ahead_->n_appended++];
    forget_row();
    tokens_.push_back(token);
    n_decoded_ = tokens_.size();
    saved_logits_.swap(row);
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
    gathered_.reset();
}

const float * Sequence::logits(Turn & turn, Cost & cost, const Progress & progress) {
    if (!has_logits_) {
        if (hidden_) {
            decoder_->compute_logits(turn, *hidden_, saved_logits_);
        } else {
            match_cache(cost);
            decode_until(turn, tokens_.size(), true, cost, progress);
            decoder_->take_over_logits(this);
        }
        has_logits_ = true;
    }
    return decoder_->holds_logits_of(this) ? llama_get_logits_ith(decoder_->context_.get(), -1) : saved_logits_.data();
}

void Sequence::decode(Turn & turn, Cost & cost, bool may_stop_before_head, const Progress & progress) {
    if (!has_undecoded()) {
        return;
    }
    if (!may_stop_before_head || !decoder_->head().can_stop()) {
        logits(turn, cost, progress);
        return;
    }
    match_cache(cost);
    // Only the last pass has a row to stop at.
    const size_t waiting = tokens_.size() - n_decoded_;
    const size_t n_batch = static_cast<size_t>(decoder_->n_batch_);
    if (waiting > n_batch) {
        decode_until(turn, tokens_.size() - (waiting - 1) % n_batch - 1, false, cost, progress);
    }
    const Decoder::StopBeforeHead stop(*decoder_, true);
    decode_until(turn, tokens_.size(), true, cost, waiting > n_batch ? Progress() : progress);
    hidden_ = decoder_->head().rows().at(0);
}

LogitsRow Sequence::row(Turn & turn, Cost & cost) {
    return hidden_ ? LogitsRow(decoder_->head(), *hidden_) : LogitsRow(logits(turn, cost));
}

LogitsRow Sequence::gathered_row(Turn & turn, Cost & cost, TokenSpan tokens) {
    if (has_logits_ || hidden_) {
        return row(turn, cost);
    }
    if (!gathered_ || !std::equal(tokens.begin(), tokens.end(), gathered_->tokens.begin(), gathered_->tokens.end())) {
        match_cache(cost);
        decode_until(turn, tokens_.size(), true, cost, {}, tokens);
        const float * logits = llama_get_sampled_logits_ith(decoder_->context_.get(), -1);
        if (logits == nullptr) {  // the device could not
            decoder_->take_over_logits(this);
            has_logits_ = true;
            return row(turn, cost);
        }
        gathered_ = Gathered{{tokens.begin(), tokens.end()}, {logits, logits + tokens.size}};
    }
    return LogitsRow::of_tokens(gathered_->logits.data());
}

void Sequence::match_cache(Cost & cost) {
    const size_t n_before = std::min(n_decoded_, slot_.cached.size());
    if (tokens_.size() - n_before > 1) {
        n_decoded_ = decoder_->reuse_prefix(slot_, tokens_);
    }
    // The cache holds keys and values, not logits: the last token is decoded in any case.
    n_decoded_ = decoder_->truncate(slot_, std::min(n_decoded_, tokens_.size() - 1));
    if (const size_t known = std::max(n_before, appended_from_); n_decoded_ > known) {
        cost.tokens_reused += static_cast<int64_t>(n_decoded_ - known);
    }
}

void Sequence::decode_until(Turn & turn, size_t end, bool want_logits, Cost & cost, const Progress & progress,
                            TokenSpan gather) {
    const int64_t start = llama_time_us();
    const size_t n_total = end - n_decoded_;
    for (size_t left = n_total; left > 0;) {
        if (left < n_total) {
            turn.pass_on();  // a long prompt does not hold up the others
        }
        decoder_->take_over_logits(nullptr);
        const size_t n = std::min(left, static_cast<size_t>(decoder_->n_batch_));
        decoder_->decode(slot_, tokens_.data() + n_decoded_, static_cast<int32_t>(n), static_cast<int32_t>(n_decoded_),
                         want_logits && n == left, gather);
        if (on_pass_) {
            on_pass_(tokens_.data(), n_decoded_, n_decoded_ + n);
        }
        n_decoded_ += n;
        left -= n;
        cost.bytes_copied += decoder_->bytes_copied();
        ++cost.forward_passes;
        if (progress) {
            progress("prefill", static_cast<float>(n_total - left) / static_cast<float>(n_total));
        }
    }
    llama_synchronize(decoder_->context_.get());
    cost.microseconds += llama_time_us() - start;
}

void Sequence::decode_tree(Turn & turn, Cost & cost, const TreeBatch & tree, bool whole,
                           const std::function<void(int32_t place, const LogitsRow & row)> & on_row,
                           const std::function<int32_t()> & kept) {
    std::vector<llama_token> waiting;
    if (has_undecoded()) {
        match_cache(cost);
        const size_t room = static_cast<size_t>(decoder_->n_batch_) -
                            std::min(tree.nodes.size(), static_cast<size_t>(decoder_->n_batch_) - 1);
        if (tokens_.size() - n_decoded_ > room) {
            decode_until(turn, tokens_.size() - 1, false, cost, {});
        }
        waiting.assign(tokens_.begin() + static_cast<ptrdiff_t>(n_decoded_), tokens_.end());
    } else {
        drop_ahead();
    }
    decoder_->take_over_logits(nullptr);
    const int64_t start = llama_time_us();
    decoder_->decode_tree(slot_, waiting, tree, whole, on_row, kept);
    cost.bytes_copied += decoder_->bytes_copied();
    n_decoded_ = tokens_.size();
    ++cost.forward_passes;
    cost.microseconds += llama_time_us() - start;
}

void Sequence::decode_ahead(Turn & turn, Cost & cost, const std::vector<llama_token> & ahead) {
    match_cache(cost);
    const size_t room = static_cast<size_t>(decoder_->n_batch_) - ahead.size();
    if (tokens_.size() - n_decoded_ > room) {
        decode_until(turn, tokens_.size() - 1, false, cost, {});
    }
    std::vector<llama_token> tokens(tokens_.begin() + static_cast<ptrdiff_t>(n_decoded_), tokens_.end());
    tokens.insert(tokens.end(), ahead.begin(), ahead.end());
    decoder_->take_over_logits(nullptr);
    const int64_t start = llama_time_us();
    slot_.n_wanted = tokens_.size() + ahead.size();  // until it is known whether they are
    std::vector<std::vector<float>> rows;
    try {
        rows = decoder_->decode_rows(slot_, tokens, static_cast<int32_t>(n_decoded_), ahead.size() + 1);
    } catch (...) {
        slot_.n_wanted = tokens_.size();
        throw;
    }
    if (on_pass_) {
        std::vector<llama_token> text = tokens_;
        text.insert(text.end(), ahead.begin(), ahead.end());
        on_pass_(text.data(), n_decoded_, text.size());
    }
    cost.microseconds += llama_time_us() - start;
    cost.bytes_copied += decoder_->bytes_copied();
    ++cost.forward_passes;
    n_decoded_ = tokens_.size();
    saved_logits_ = std::move(rows.front());
    rows.erase(rows.begin());
    has_logits_ = true;
    ahead_ = Ahead{ahead, std::move(rows)};
}

// The cache ends with the tokens again.
void Sequence::drop_ahead() {
    ahead_.reset();
    slot_.n_wanted = tokens_.size();
    decoder_->truncate(slot_, tokens_.size());
}

std::vector<uint8_t> Sequence::copy_state(Turn &) {
    drop_ahead();
    return decoder_->copy_state(slot_);
}

void Sequence::restore_state(Turn &, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & state) {
    try {
        decoder_->restore_state(slot_, state, tokens.size());
    } catch (...) {
        forget_outputs();
        n_decoded_ = 0;  // the tokens are decoded again when logits are asked for
        throw;
    }
    slot_.cached = tokens;
    tokens_ = tokens;
    slot_.n_wanted = tokens_.size();
    appended_from_ = 0;
    n_decoded_ = tokens_.size();
    forget_outputs();
}

void Sequence::save_logits() {
    const float * logits = llama_get_logits_ith(decoder_->context_.get(), -1);
    saved_logits_.assign(logits, logits + decoder_->model().n_vocab());
}

}  // namespace eliza
