"""What an authority of a test's says of certificates besides having issued them."""

import datetime

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def revoking(by: trustme.CA, *revoked: trustme.LeafCert) -> bytes:
    """A list, PEM, of these certificates as revoked."""
    authority = x509.load_pem_x509_certificate(by.cert_pem.bytes())
    key = load_pem_private_key(by.private_key_pem.bytes(), None)
    assert isinstance(key, CertificateIssuerPrivateKeyTypes)
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    made = made.last_update(now).next_update(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.CRLNumber(1), critical=False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    for each in revoked:
        serial = x509.load_pem_x509_certificate(each.cert_chain_pems[0].bytes()).serial_number
        made = made.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        )
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
