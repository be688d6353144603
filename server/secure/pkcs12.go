package secure

import (
	"encoding/asn1"
	"errors"
	"fmt"

	"software.sslmate.com/src/go-pkcs12"
)

// maxIterations is how often a store may have its password hashed. OpenSSL has 2048 by default,
// Java 10000.
const maxIterations = 1 << 20

// decodePKCS12 reads a PKCS12 store: with private keys in the order of the store, which is the
// order of their aliases in Java; or with certificates that are marked as trusted, as keytool marks
// them.
func decodePKCS12(text []byte, password string, withKey bool) (c contents, err error) {
	if err := checkIterations(text, 0); err != nil {
		return c, fmt.Errorf("PKCS12: %w", err)
	}
	if !withKey {
		c.certs, err = pkcs12.DecodeTrustStore(text, password)
		return c, pkcs12Error(err)
	}
	for _, part := range splitKeys(text, password) {
		key, leaf, rest, err := pkcs12.DecodeChain(part, password)
		if err != nil {
			return c, pkcs12Error(err)
		}
		c.keys = append(c.keys, key)
		c.certs = append(append(c.certs, leaf), rest...)
	}
	return c, nil
}

func pkcs12Error(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return errPassword
	case errors.Is(err, pkcs12.ErrDecryption):
		return errPassword
	}
	return fmt.Errorf("neither JKS nor PKCS12 that can be read: %w", err)
}

// checkIterations refuses a store that would have its password hashed for minutes. It walks through
// everything that can be seen without the password: a number of iterations is an INTEGER after an
// OCTET STRING, the salt.
func checkIterations(text []byte, depth int) error {
	const maxDepth = 32
	if depth > maxDepth {
		return errors.New("is nested too deeply")
	}
	afterOctets := false
	for len(text) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(text, &v)
		if err != nil {
			return nil // the bytes are no ASN.1 after all; if they should be, the library says so
		}
		text = rest
		var iterations int
		if afterOctets && v.Class == asn1.ClassUniversal && v.Tag == asn1.TagInteger {
			if _, err := asn1.Unmarshal(v.FullBytes, &iterations); err != nil || iterations > maxIterations {
				return fmt.Errorf("has its password hashed more than %d times", maxIterations)
			}
		}
		afterOctets = v.Class == asn1.ClassUniversal && v.Tag == asn1.TagOctetString
		if v.IsCompound || afterOctets {
			if err := checkIterations(v.Bytes, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
