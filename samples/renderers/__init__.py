"""How the binary documents of the sample corpus are made from the texts in `source/`. Not part of the product."""
