package secure

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"

	"lockkeeper/server/secure/pemfile"
)

// kinds of blocks in PEM.
const (
	pemRevocations = "X509 CRL"
	pemTrusted     = "TRUSTED CERTIFICATE"
)

// decodePEM reads certificates and, if withKey, one private key. Blocks that it does not read are
// an error, but for private keys in a store of trusted certificates, and parameters of keys, which
// keys have in themselves.
func decodePEM(text []byte, password string, withKey bool) (c contents, err error) {
	if isDER(text) {
		return c, errors.New("is in DER and not in PEM (openssl x509 -inform der)")
	}
	if bytes.HasPrefix(text, jksMagic) {
		return c, errors.New("is a Java key store and not in PEM (keytool -importkeystore -deststoretype PKCS12)")
	}
	blocks, err := pemfile.Parse(text)
	if err != nil {
		return c, err
	}
	for _, block := range blocks {
		switch block.Type {
		case "CERTIFICATE", "X509 CERTIFICATE":
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return c, block.Errorf("certificate %d: %v", len(c.certs)+1, err)
			}
			c.certs = append(c.certs, cert)
		case "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
			if !withKey {
				continue
			}
			if len(c.keys) > 0 {
				return c, block.Errorf("has more than one private key")
			}
			key, err := pemKey(block, password)
			if err != nil {
				return c, fmt.Errorf("line %d: private key: %w", block.Line, err)
			}
			c.keys = append(c.keys, key)
		case "EC PARAMETERS", "DH PARAMETERS":
		default:
			return c, block.Errorf("%s", unreadBlock(block.Type))
		}
	}
	return c, nil
}

// isDER reports whether a file is in DER: a SEQUENCE of more than 127 bytes. No text begins so.
func isDER(text []byte) bool { return len(text) > 1 && text[0] == 0x30 && text[1] > 0x80 }

// unreadBlock formats why a block is not read, and the remedy.
func unreadBlock(kind string) string {
	switch kind {
	case pemTrusted:
		return "a TRUSTED CERTIFICATE restricts its uses in a way that is not read here; without them: openssl " +
			"x509 -in FILE"
	case pemRevocations:
		return "has a revocation list, which belongs into a file of its own (tls.crl)"
	case "PKCS7", "CMS":
		return "has a " + kind + ", which is not read; openssl pkcs7 -print_certs -in FILE prints its certificates"
	case "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST":
		return "has a request for a certificate, which is none yet"
	}
	return fmt.Sprintf("has a %s, which is neither a certificate nor a private key that can be read", kind)
}

// pemKey reads a private key.
func pemKey(block pemfile.Block, password string) (crypto.PrivateKey, error) {
	switch block.Type {
	case "RSA PRIVATE KEY", "EC PRIVATE KEY":
		if block.Headers["DEK-Info"] != "" {
			return nil, errors.New("is encrypted as before PKCS8; convert it with openssl pkcs8 -topk8 -v2 aes256")
		}
		if block.Type == "EC PRIVATE KEY" {
			return x509.ParseECPrivateKey(block.Bytes)
		}
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		plain, err := decryptPKCS8(block.Bytes, password)
		if err != nil {
			return nil, err
		}
		key, err := x509.ParsePKCS8PrivateKey(plain)
		if err != nil {
			return nil, errPassword // with some wrong passwords the padding looks right
		}
		return key, nil
	}
	return x509.ParsePKCS8PrivateKey(block.Bytes)
}

var (
	oidPBES2    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	hashesByOID = map[string]func() hash.Hash{
		"":                    sha1.New, // the default of PBKDF2
		"1.2.840.113549.2.7":  sha1.New,
		"1.2.840.113549.2.9":  sha256.New,
		"1.2.840.113549.2.10": sha512.New384,
		"1.2.840.113549.2.11": sha512.New,
	}
	ciphersByOID = map[string]struct {
		keyBytes int
		make     func(key []byte) (cipher.Block, error)
	}{
		// AES with 128, 192 and 256 bits, and the default of openssl req.
		"2.16.840.1.101.3.4.1.2":  {16, aes.NewCipher},
		"2.16.840.1.101.3.4.1.22": {24, aes.NewCipher},
		"2.16.840.1.101.3.4.1.42": {32, aes.NewCipher},
		"1.2.840.113549.3.7":      {24, des.NewTripleDESCipher},
	}
)

// decryptPKCS8 decrypts a private key in PKCS8 (RFC 5958) that is encrypted with PBES2 (RFC 8018),
// PBKDF2, and AES or triple DES in CBC mode, as OpenSSL writes it since 1.1.
func decryptPKCS8(der []byte, password string) ([]byte, error) {
	var info struct {
		Algo pkix.AlgorithmIdentifier
		Data []byte
	}
	if rest, err := asn1.Unmarshal(der, &info); err != nil || len(rest) > 0 {
		return nil, errors.New("is no PKCS8")
	}
	if !info.Algo.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("is encrypted with %v; only PBES2 is there (openssl pkcs8 -topk8 -v2 aes256)",
			info.Algo.Algorithm)
	}
	var params struct{ KDF, Cipher pkix.AlgorithmIdentifier }
	var kdf struct {
		Salt       []byte
		Iterations int
		KeyBytes   int                      `asn1:"optional"`
		Hash       pkix.AlgorithmIdentifier `asn1:"optional"`
	}
	var iv []byte
	_, err1 := asn1.Unmarshal(info.Algo.Parameters.FullBytes, &params)
	_, err2 := asn1.Unmarshal(params.KDF.Parameters.FullBytes, &kdf)
	_, err3 := asn1.Unmarshal(params.Cipher.Parameters.FullBytes, &iv)
	newHash := hashesByOID[kdf.Hash.Algorithm.String()]
	with := ciphersByOID[params.Cipher.Algorithm.String()]
	switch {
	case errors.Join(err1, err2, err3) != nil || !params.KDF.Algorithm.Equal(oidPBKDF2) || newHash == nil ||
		with.make == nil:
		return nil, errors.New("is not encrypted with PBKDF2 and AES-CBC (openssl pkcs8 -topk8 -v2 aes256)")
	case kdf.Iterations < 1 || kdf.Iterations > maxIterations:
		return nil, fmt.Errorf("has its password hashed more than %d times", maxIterations)
	}
	key, err := pbkdf2.Key(newHash, password, kdf.Salt, kdf.Iterations, with.keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := with.make(key)
	if err != nil {
		return nil, err
	}
	if len(iv) != block.BlockSize() || len(info.Data) == 0 || len(info.Data)%block.BlockSize() != 0 {
		return nil, errors.New("is cut off")
	}
	plain := make([]byte, len(info.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, info.Data)
	pad := int(plain[len(plain)-1])
	if pad < 1 || pad > block.BlockSize() {
		return nil, errPassword
	}
	return plain[:len(plain)-pad], nil
}
