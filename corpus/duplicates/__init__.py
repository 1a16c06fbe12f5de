"""Which of equal or similar documents is used, decided on signatures."""
