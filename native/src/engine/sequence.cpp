#include "engine/sequence.h"

#include <algorithm>

namespace eliza {

Sequence::Sequence(std::shared_ptr<Decoder> decoder, int32_t slot_id, const std::string & cache_key)
    : decoder_(std::move(decoder)), slot_(decoder_->acquire_slot(slot_id, cache_key)) {}

Sequence::~Sequence() {
    {
        const std::lock_guard<std::mutex> lock(decoder_->mutex_);
        if (decoder_->logits_owner_ == this) {
            decoder_->logits_owner_ = nullptr;
        }
    }
    decoder_->release_slot(slot_);
}

void Sequence::append(const llama_token * tokens, size_t n) {
    tokens_.insert(tokens_.end(), tokens, tokens + n);
    has_logits_ = has_logits_ && n == 0;
}

void Sequence::truncate(size_t n) {
    if (n < tokens_.size()) {
        tokens_.resize(n);
        n_decoded_ = std::min(n_decoded_, n);
        has_logits_ = false;
    }
}

const float * Sequence::logits(const Decoder::Turn &, Cost & cost, const Progress & progress) {
    if (!has_logits_) {
        decode_waiting(cost, progress);
    }
    return decoder_->logits_owner_ == this ? llama_get_logits_ith(decoder_->context_.get(), -1) : saved_logits_.data();
}

void Sequence::decode_waiting(Cost & cost, const Progress & progress) {
    const size_t n_before = std::min(n_decoded_, slot_.cached.size());
    if (tokens_.size() - n_before > 1) {
        n_decoded_ = decoder_->reuse_prefix(slot_, tokens_);
    }
    // The cache holds keys and values, not logits: the last token is decoded in any case.
    n_decoded_ = decoder_->truncate(slot_, std::min(n_decoded_, tokens_.size() - 1));
    if (n_decoded_ > n_before) {
        cost.tokens_reused += static_cast<int64_t>(n_decoded_ - n_before);
    }

    if (decoder_->logits_owner_ != nullptr && decoder_->logits_owner_ != this) {
        decoder_->logits_owner_->save_logits();
    }
    decoder_->logits_owner_ = nullptr;

    const int64_t start = llama_time_us();
    const size_t n_total = tokens_.size() - n_decoded_;
    for (size_t left = n_total; left > 0;) {
        const size_t n = std::min(left, static_cast<size_t>(decoder_->n_batch_));
        decoder_->decode(slot_, tokens_.data() + n_decoded_, static_cast<int32_t>(n), static_cast<int32_t>(n_decoded_),
                         n == left);
        n_decoded_ += n;
        left -= n;
        ++cost.forward_passes;
        if (progress) {
            progress("prefill", static_cast<float>(n_total - left) / static_cast<float>(n_total));
        }
    }
    llama_synchronize(decoder_->context_.get());
    cost.microseconds += llama_time_us() - start;
    decoder_->logits_owner_ = this;
    has_logits_ = true;
}

void Sequence::save_logits() {
    const float * logits = llama_get_logits_ith(decoder_->context_.get(), -1);
    saved_logits_.assign(logits, logits + decoder_->model().n_vocab());
}

}  // namespace eliza
