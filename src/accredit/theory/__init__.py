"""The theory of credit, checked on trees small enough to enumerate; `accredit lab`."""
