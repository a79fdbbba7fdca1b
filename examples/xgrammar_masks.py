"""Compute token masks with xgrammar, in place of llguidance.

masks = XGrammarMasks(model.vocabulary(), json.dumps(schema))
print(model.generate(prompt, schema=masks).text)
"""

import xgrammar


class XGrammarMasks:
    def __init__(self, vocabulary, schema):
        texts, n_vocab, ends = list(vocabulary.texts), vocabulary.n_vocab, list(vocabulary.ends)
        info = xgrammar.TokenizerInfo(texts, vocab_size=n_vocab, stop_token_ids=ends)
        compiler = xgrammar.GrammarCompiler(info)
        self.grammar = compiler.compile_json_schema(schema, any_whitespace=False)
        self.n_words, self.n_vocab = vocabulary.n_words, n_vocab

    def start(self):
        return XGrammarText(self.grammar, self.n_vocab)


class XGrammarText:
    def __init__(self, grammar, n_vocab):
        self.matcher = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
        self.bits = xgrammar.allocate_token_bitmask(1, n_vocab)
        self.accept, self.forced = self.matcher.accept_token, lambda: ()

    @property
    def has_ended(self):
        return self.matcher.is_terminated()

    def mask(self):
        self.matcher.fill_next_token_bitmask(self.bits)
        return self.bits.numpy()[0].view("uint32")
