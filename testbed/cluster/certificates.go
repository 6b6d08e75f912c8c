// Keys and certificates of one cluster: the certificate authority, the API server's certificate for loopback, its client certificate for
// aggregated API servers, and the signing key of service account tokens. They are valid only for this cluster.
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

// frontProxyName is the common name of the API server's client certificate.
const frontProxyName = "front-proxy-client"

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int64
}

func newAuthority(name string) (*authority, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate: certificate, key: key, issued: 1}, err
}

// issue returns a certificate and its key, both as DER. The template needs a subject and its use.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	a.issued++
	template.SerialNumber = big.NewInt(a.issued)
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	certificate, err = x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalECPrivateKey(private)
	return certificate, key, err
}

// writeSecrets writes the keys and certificates to `dir`, and returns the administrator's token.
func writeSecrets(dir string) (token string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	authority, err := newAuthority("muster-testbed")
	if err != nil {
		return "", err
	}
	server, serverKey, err := authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return "", err
	}
	// The API server forwards requests to aggregated API servers with a certificate of this authority.
	frontProxy, err := newAuthority("muster-testbed-front-proxy")
	if err != nil {
		return "", err
	}
	proxy, proxyKey, err := frontProxy.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: frontProxyName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", err
	}
	accounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	for name, block := range map[string]pem.Block{
		"ca.crt":                 {Type: "CERTIFICATE", Bytes: authority.certificate.Raw},
		"apiserver.crt":          {Type: "CERTIFICATE", Bytes: server},
		"apiserver.key":          {Type: "EC PRIVATE KEY", Bytes: serverKey},
		"front-proxy-ca.crt":     {Type: "CERTIFICATE", Bytes: frontProxy.certificate.Raw},
		"front-proxy-client.crt": {Type: "CERTIFICATE", Bytes: proxy},
		"front-proxy-client.key": {Type: "EC PRIVATE KEY", Bytes: proxyKey},
		"service-accounts.key":   {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(accounts)},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			return "", err
		}
	}
	random := make([]byte, 16)
	rand.Read(random)
	return hex.EncodeToString(random), nil
}
