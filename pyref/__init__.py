"""NumPy references: for each kernel the text that defines its bytes, and the arithmetic contract they share."""
