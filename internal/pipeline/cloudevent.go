package pipeline

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"

	"geodlq/internal/geo"
)

// CloudEvent is the context of a CloudEvent 1.0, binary or structured, as far as
// it concerns identity.
type CloudEvent struct {
	ID, Source, Subject, Sequence string
}

// Key joins source and id, which together identify the event (CloudEvents 1.0
// §3.1), without '#', which is ours: <source>|<id>.
func (c CloudEvent) Key() string {
	return keyEscaper.Replace(c.Source) + "|" + keyEscaper.Replace(c.ID)
}

// HashedKey stands for Key where that can't be a key.
func (c CloudEvent) HashedKey() string {
	return fmt.Sprintf("cloudevent-%x", sha256.Sum256([]byte(c.Key())))
}

var keyEscaper = strings.NewReplacer("%", "%25", "#", "%23", "|", "%7C")

// StructuredCloudEvent reads the context of a structured CloudEvent from its
// body, undecoded.
func StructuredCloudEvent(body []byte) (CloudEvent, error) {
	members, err := jsonMembers(body)
	if err != nil {
		return CloudEvent{}, err
	}
	return eventContext(members)
}

func eventContext(members map[string]member) (CloudEvent, error) {
	var c CloudEvent
	for _, attribute := range []struct {
		name     string
		to       *string
		required bool
	}{
		{"specversion", new(string), true}, {"type", new(string), true},
		{"id", &c.ID, true}, {"source", &c.Source, true},
		{"subject", &c.Subject, false}, {"sequence", &c.Sequence, false},
	} {
		m, ok := members[attribute.name]
		if !ok {
			if attribute.required {
				return CloudEvent{}, fmt.Errorf("%s is missing", attribute.name)
			}
			continue
		}
		if err := json.Unmarshal(m.raw, attribute.to); err != nil || (attribute.required && *attribute.to == "") {
			return CloudEvent{}, fmt.Errorf("%s is not a string that says anything", attribute.name)
		}
	}
	return c, nil
}

// structured is the data of a structured CloudEvent.
type structured struct {
	bytes     []byte
	mediaType string
	offset    int // of the data in the body; -1 where it was encoded
}

func structuredData(body []byte) (structured, error) {
	members, err := jsonMembers(body)
	if err != nil {
		return structured{}, err
	}
	if _, err := eventContext(members); err != nil {
		return structured{}, err
	}
	mediaType := "application/json"
	if m, ok := members["datacontenttype"]; ok {
		if err := json.Unmarshal(m.raw, &mediaType); err != nil {
			return structured{}, errors.New("datacontenttype is not a string")
		}
	}
	data, plain := members["data"]
	encoded, base64ed := members["data_base64"]
	switch {
	case plain && base64ed:
		return structured{}, errors.New("data and data_base64 exclude each other")
	case base64ed:
		var text string
		if err := json.Unmarshal(encoded.raw, &text); err != nil {
			return structured{}, errors.New("data_base64 is not a string")
		}
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return structured{}, errors.New("data_base64 is not base64")
		}
		return structured{decoded, mediaType, -1}, nil
	case !plain:
		return structured{}, errors.New("data is missing")
	}
	var text string
	if !isJSON(mediaType) && json.Unmarshal(data.raw, &text) == nil {
		return structured{[]byte(text), mediaType, -1}, nil
	}
	return structured{data.raw, mediaType, data.offset}, nil
}

func isJSON(mediaType string) bool {
	base, _, err := mime.ParseMediaType(mediaType)
	return err == nil && (base == "application/json" || strings.HasSuffix(base, "+json"))
}

// member is the value of a JSON object's member and where it begins in the text.
type member struct {
	raw    json.RawMessage
	offset int
}

// jsonMembers reads what a CloudEvent says of itself, by exact member names.
func jsonMembers(text []byte) (map[string]member, error) {
	spans, err := geo.Members(text, "specversion", "type", "id", "source", "subject", "sequence", "datacontenttype", "data", "data_base64")
	if err != nil {
		return nil, err
	}
	members := make(map[string]member, len(spans))
	for name, span := range spans {
		members[name] = member{text[span.Start:span.End:span.End], span.Start}
	}
	return members, nil
}
