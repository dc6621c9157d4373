package probes

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// maxRedirects is how many redirects on one host are followed (PRB-21).
const maxRedirects = 10

// maxHeaderBytes bounds what a server may send before its answer.
const maxHeaderBytes = 64 << 10

// request is an HTTP probe.
type request struct {
	client  *http.Client
	request *http.Request
	timeout time.Duration
}

func newRequest(t *pod.ProbeTarget, get *corev1.HTTPGetAction, userAgent string, timeout time.Duration) (*request, error) {
	at, err := address(t, get.Host, get.Port)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(get.Path)
	if err != nil {
		target = &url.URL{Path: get.Path} // then it is a path and nothing else
	}
	target.Scheme, target.Host = "http", at
	if strings.EqualFold(string(get.Scheme), string(corev1.URISchemeHTTPS)) {
		target.Scheme = "https"
	}
	r, err := http.NewRequest(http.MethodGet, target.String(), http.NoBody) //nolint:noctx // each turn gives it one
	if err != nil {
		return nil, pod.Errorf(pod.ClassInvalid, "", "the request cannot be made: %w", err)
	}
	setHeaders(r, get.HTTPHeaders, userAgent)
	return &request{
		request: r, timeout: timeout,
		client: &http.Client{
			CheckRedirect: sameHost,
			Transport: &http.Transport{
				DialContext: dialer().DialContext, DisableKeepAlives: true, DisableCompression: true,
				// The certificate is not what is probed.
				TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
				MaxResponseHeaderBytes: maxHeaderBytes,
			},
		},
	}, nil
}

// setHeaders adds the headers of the pod, duplicates kept. User-Agent and Accept
// have defaults; given empty they are not sent. Host names the host (PRB-22).
func setHeaders(r *http.Request, headers []corev1.HTTPHeader, userAgent string) {
	for _, h := range headers {
		r.Header.Add(h.Name, h.Value)
	}
	r.Host = r.Header.Get("Host")
	r.Header.Del("Host")
	if _, given := r.Header["User-Agent"]; !given {
		r.Header.Set("User-Agent", userAgent)
	}
	accept, given := r.Header["Accept"]
	switch {
	case !given:
		r.Header.Set("Accept", "*/*")
	case accept[0] == "":
		r.Header.Del("Accept")
	}
	// A User-Agent that is there and empty keeps the library from sending its own.
}

// sameHost ends a chain of redirects where it leaves the host.
func sameHost(r *http.Request, via []*http.Request) error {
	if r.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

func (q *request) ask(ctx context.Context) (r Result, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	response, err := q.client.Do(q.request.WithContext(ctx))
	if err != nil {
		return Failure, why(ctx, err, q.timeout), nil
	}
	defer func() { _ = response.Body.Close() }() // what was read is what counts
	var kept bytes.Buffer
	body := io.Discard
	redirect := response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest
	if redirect {
		body = &kept
	}
	if _, err := io.Copy(body, io.LimitReader(response.Body, maxBodyBytes)); err != nil {
		return Failure, why(ctx, err, q.timeout), nil
	}
	switch {
	case redirect:
		return Warning, "Probe terminated redirects, Response body: " + kept.String(), nil
	case response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices:
		return Success, "", nil
	}
	// The body may hold what is nobody's business, so it is not told.
	return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode), nil
}

// why says why a request failed, without the words of the library around it.
func why(ctx context.Context, err error, timeout time.Duration) string {
	if timedOut(ctx, err) {
		return fmt.Sprintf("no answer within %v: %v", timeout, err)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Sprintf("%s %q: %v", e.Op, e.URL, e.Err)
	}
	return err.Error()
}
