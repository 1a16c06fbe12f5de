"""Does own span pretraining pay from text to text, and does PyTorch come to the same?"""
