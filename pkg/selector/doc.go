// Package selector is the Calico selector language: parse, evaluate, print (semantics §9). It uses the standard
// library only.
package selector
