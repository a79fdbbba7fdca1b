"""Training of the small embedded model: corpus generator, tokenizer, network and GGUF export."""
