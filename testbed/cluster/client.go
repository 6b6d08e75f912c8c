// A minimal API client over HTTP for the setup of a cluster. Manifests are sent unchanged, because the API server accepts YAML.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// The timeout of one step of the start of a cluster.
const timeout = 90 * time.Second

type client struct {
	server string
	token  string
	http   http.Client
}

func newClient(server, token string, authority []byte) (*client, error) {
	c := &client{server: server, token: token}
	if authority != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authority) {
			return nil, errors.New("the certificate authority of the cluster is not PEM")
		}
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	return c, nil
}

// clientOf reads a kubeconfig without credentials, which is what `muster up` writes by default.
func clientOf(kubeconfig string) (*client, error) {
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	server := regexp.MustCompile(`(?m)^\s*"?server"?:\s*"?(http://[^\s",]+)`).FindSubmatch(data)
	if server == nil {
		return nil, fmt.Errorf("%s has no plain http:// server; only such a cluster can be joined", kubeconfig)
	}
	return newClient(string(server[1]), "", nil)
}

// call sends one request. A response other than 2xx is an error with the response body.
func (c *client) call(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = &refusal{method: method, path: path, code: response.StatusCode, text: string(answer)}
	}
	return answer, err
}

// refusal is a response of the server other than 2xx.
type refusal struct {
	method, path string
	code         int
	text         string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s %s: %d: %.500s", r.method, r.path, r.code, r.text)
}

// create posts an object. An existing object is not an error.
func (c *client) create(path, contentType string, body []byte) error {
	_, err := c.call(context.Background(), http.MethodPost, path, contentType, body)
	var refused *refusal
	if errors.As(err, &refused) && refused.code == http.StatusConflict {
		return nil
	}
	return err
}

// createAll posts each manifest of a folder; each file has one object.
func (c *client) createAll(path, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no manifests in %s", folder)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := c.create(path, "application/yaml", body); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// until polls a path until `done` accepts the response. It fails when one of the running processes exits.
func (c *client) until(what, path string, running []process, done func([]byte) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		answer, err := c.call(ctx, http.MethodGet, path, "application/json", nil)
		if err == nil && done(answer) {
			return nil
		}
		if err != nil {
			last = err
		}
		for _, p := range running {
			if !p.alive() {
				return fmt.Errorf("%s exited while waiting for %s; see its log", p.Name, what)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("no %s within %s; last error: %v", what, timeout, last)
}

// countReady counts the items of a list that have a condition of this type with status True.
func countReady(list []byte, condition string) (ready, all int) {
	var items struct {
		Items []struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if json.Unmarshal(list, &items) != nil {
		return 0, 0
	}
	for _, item := range items.Items {
		for _, c := range item.Status.Conditions {
			if c.Type == condition && c.Status == "True" {
				ready++
			}
		}
	}
	return ready, len(items.Items)
}
