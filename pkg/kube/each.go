package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Each lists a resource in JSON and calls do with the text of one object after the other, so that no more than one is in memory at a time. Tenants decide
// how large the whole list is, and it may be some hundred MB. An error of do ends it. The result is the metadata of the list.
func (c *Client) Each(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions, do func(text []byte) error) (metav1.ListMeta, error) {
	body, err := c.plain.Get().AbsPath("/apis", gvr.Group, gvr.Version, gvr.Resource).SetHeader("Accept", runtime.ContentTypeJSON).
		VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0).Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	m, err := eachOf(body, do)
	if err != nil {
		return m, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	return m, nil
}

// eachOf reads a list.
func eachOf(body io.Reader, do func(text []byte) error) (m metav1.ListMeta, err error) {
	text := json.NewDecoder(body)
	if err := expect(text, '{'); err != nil {
		return m, err
	}
	for text.More() {
		name, err := text.Token()
		if err != nil {
			return m, err
		}
		switch name {
		case "metadata":
			err = text.Decode(&m)
		case "items":
			err = eachItem(text, do)
		default:
			err = text.Decode(&json.RawMessage{})
		}
		if err != nil {
			return m, err
		}
	}
	if err := expect(text, '}'); err != nil {
		return m, err
	}
	if m.ResourceVersion == "" {
		return m, errNoList
	}
	return m, nil
}

// eachItem reads the objects of a list; null is a list of none.
func eachItem(text *json.Decoder, do func(text []byte) error) error {
	switch token, err := text.Token(); {
	case err != nil || token == nil:
		return err
	case token != json.Delim('['):
		return errNoList
	}
	for text.More() {
		var raw json.RawMessage
		if err := text.Decode(&raw); err != nil {
			return err
		}
		if err := do(raw); err != nil {
			return err
		}
	}
	return expect(text, ']')
}

var errNoList = errors.New("the answer is no list: is this an API server?")

// expect reads a bracket.
func expect(text *json.Decoder, bracket json.Delim) error {
	token, err := text.Token()
	if err == nil && token != bracket {
		err = errNoList
	}
	return err
}
