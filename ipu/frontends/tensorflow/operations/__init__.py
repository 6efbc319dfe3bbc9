"""Operations that the vendor added: normalisations, activations, dropout, captured gradients."""
