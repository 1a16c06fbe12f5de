"""Time, money and disk that a run is estimated to take."""
