package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/paulmach/orb"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"geodlq/internal/dlq"
)

// Webhook posts features to a URL: a GeoJSON Feature in EPSG:4326, with the work
// key as Idempotency-Key and, where there is a secret, signed as Standard
// Webhooks wants it.
type Webhook struct {
	URL     string
	Timeout time.Duration
	Client  *http.Client // must not follow redirects
	signer  *webhooks.Webhook
}

// NewWebhook returns a Webhook; secret is base64 with or without the prefix
// whsec_, or empty for no signature.
func NewWebhook(url, secret string, timeout time.Duration) (*Webhook, error) {
	w := &Webhook{URL: url, Timeout: timeout, Client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if secret != "" {
		signer, err := webhooks.NewWebhook(secret)
		if err != nil {
			return nil, fmt.Errorf("sink secret: %w (it is base64, as whsec_… or plain)", err)
		}
		w.signer = signer
	}
	return w, nil
}

// maxAnswer is how much of an answer's body is read.
const maxAnswer = 4 << 10

// Post delivers a feature; a *DeliveryError where it was not taken.
func (w *Webhook) Post(ctx context.Context, d *Delivery) error {
	body, err := featureJSON(d)
	if err != nil {
		return &DeliveryError{Class: dlq.ClassUnknown, Text: "the feature can't be written as GeoJSON: " + err.Error()}
	}
	var written atomic.Bool
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true) },
	})
	request, err := w.request(traced, d, body)
	if err != nil {
		return &DeliveryError{Class: dlq.ClassUnknown, Text: "the sink's URL can't be called"}
	}
	response, err := w.Client.Do(request)
	if err != nil {
		return w.noAnswer(ctx, err, written.Load(), time.Since(began))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return nil // the status is the answer; a body cut short does not undo it
	}
	if err != nil {
		text = nil
	}
	return answerFailed(response.StatusCode, dlq.CleanText(strings.TrimSpace(string(text)), 300), retryAfter(response.Header))
}

func (w *Webhook) request(ctx context.Context, d *Delivery, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	header := request.Header
	header.Set("Content-Type", "application/geo+json")
	header.Set("User-Agent", "geodlq")
	header.Set("Idempotency-Key", d.Event.WorkKey)
	header.Set("Geodlq-Source", d.Event.Source)
	if d.Event.Task != "" {
		header.Set("Geodlq-Task", d.Event.Task)
	}
	now := time.Now()
	header.Set(webhooks.HeaderWebhookID, d.Event.WorkKey)
	header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	if w.signer != nil {
		signature, err := w.signer.Sign(d.Event.WorkKey, now, body)
		if err != nil {
			return nil, err
		}
		header.Set(webhooks.HeaderWebhookSignature, signature)
	}
	return request, nil
}

// noAnswer tells a timeout from a connection that failed. Where the request had
// gone out, nobody knows what became of it: the key protects.
func (w *Webhook) noAnswer(ctx context.Context, err error, written bool, waited time.Duration) *DeliveryError {
	var netErr net.Error
	timeout := errors.Is(ctx.Err(), context.DeadlineExceeded) || (errors.As(err, &netErr) && netErr.Timeout())
	if timeout {
		return &DeliveryError{Class: dlq.ClassUpstreamTimeout, Transient: true, Unknown: written,
			Text: fmt.Sprintf("POST sink: no answer in %s", min(w.Timeout, waited.Round(100*time.Millisecond)))}
	}
	// The innermost error: the outer ones repeat the URL.
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return &DeliveryError{Class: dlq.ClassUpstreamError, Transient: true, Unknown: written,
		Text: fmt.Sprintf("POST sink: %v", err)}
}

// maxRetryAfter bounds what a sink may ask for.
const maxRetryAfter = time.Hour

// retryAfter reads Retry-After (RFC 9110 §10.2.3): seconds or a date.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if value == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// featureJSON is the normalised feature (RFC 7946 §3.2), its id and properties
// byte for byte as sent.
func featureJSON(d *Delivery) ([]byte, error) {
	geometry := json.RawMessage("null")
	if d.Geometry != nil {
		text, err := json.Marshal(geometryObject(d.Geometry))
		if err != nil {
			return nil, err
		}
		geometry = text
	}
	var out bytes.Buffer
	out.Grow(len(d.ID) + len(geometry) + len(d.Properties) + 100)
	out.WriteString(`{"type":"Feature",`)
	if d.ID != nil {
		out.WriteString(`"id":`)
		out.Write(d.ID)
		out.WriteByte(',')
	}
	properties := d.Properties
	if properties == nil {
		properties = []byte("null")
	}
	out.WriteString(`"geometry":`)
	out.Write(geometry)
	out.WriteString(`,"properties":`)
	out.Write(properties)
	out.WriteByte('}')
	return out.Bytes(), nil
}

// geometryJSON is a geometry as GeoJSON has it (RFC 7946 §3.1); orb's own types marshal as
// coordinates.
type geometryJSON struct {
	Coordinates orb.Geometry   `json:"coordinates,omitzero"`
	Geometries  []geometryJSON `json:"geometries,omitzero"`
	Type        string         `json:"type"`
}

func geometryObject(g orb.Geometry) geometryJSON {
	collection, ok := g.(orb.Collection)
	if !ok {
		return geometryJSON{Type: g.GeoJSONType(), Coordinates: g}
	}
	members := make([]geometryJSON, len(collection))
	for i, member := range collection {
		members[i] = geometryObject(member)
	}
	return geometryJSON{Type: g.GeoJSONType(), Geometries: members}
}
