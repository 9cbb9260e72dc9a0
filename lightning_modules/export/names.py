"""Names of the weights in stock classes, by plain names (`parts.py`); {} stands for the number of the block. No
torch."""

BERT_BODY = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "blocks.{}.query": "encoder.layer.{}.attention.self.query",
    "blocks.{}.key": "encoder.layer.{}.attention.self.key",
    "blocks.{}.value": "encoder.layer.{}.attention.self.value",
    "blocks.{}.attention_output": "encoder.layer.{}.attention.output.dense",
    "blocks.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "blocks.{}.expand": "encoder.layer.{}.intermediate.dense",
    "blocks.{}.contract": "encoder.layer.{}.output.dense",
    "blocks.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
}
BERT_HEAD = {
    "head.transform": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "output": "cls.predictions.decoder",
    "output.bias": "cls.predictions.bias",
}

GPT2_BODY = {
    "tokens": "wte",
    "positions": "wpe",
    "blocks.{}.attention_norm": "h.{}.ln_1",
    "blocks.{}.query_key_value": "h.{}.attn.c_attn",
    "blocks.{}.attention_output": "h.{}.attn.c_proj",
    "blocks.{}.feed_forward_norm": "h.{}.ln_2",
    "blocks.{}.expand": "h.{}.mlp.c_fc",
    "blocks.{}.contract": "h.{}.mlp.c_proj",
    "final_norm": "ln_f",
    "output.weight": "lm_head.weight",
}
