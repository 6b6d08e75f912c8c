// Keys and certificates of one cluster: the certificate authority, the API server's certificate for loopback, and the signing key of
// service account tokens. They are valid only for this cluster.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// writeSecrets writes to `dir`: ca.crt, apiserver.crt, apiserver.key and service-accounts.key, and returns the administrator's token.
func writeSecrets(dir string) (token string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "muster-testbed"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	authorityDer, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return "", err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	serverDer, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), authorityKey)
	if err != nil {
		return "", err
	}
	serverKeyDer, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		return "", err
	}
	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	for name, block := range map[string]pem.Block{
		"ca.crt":               {Type: "CERTIFICATE", Bytes: authorityDer},
		"apiserver.crt":        {Type: "CERTIFICATE", Bytes: serverDer},
		"apiserver.key":        {Type: "EC PRIVATE KEY", Bytes: serverKeyDer},
		"service-accounts.key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(accounts)},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			return "", err
		}
	}
	random := make([]byte, 16)
	rand.Read(random)
	return hex.EncodeToString(random), nil
}
