"""Pure maths: tensors and numbers in, tensors and numbers out."""
