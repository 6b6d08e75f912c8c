// Checks of lists: watch lists and paging.
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
)

// A watch list sends all objects as ADDED, then a bookmark with the annotation of the end, then changes.
func streamedList(b environment) error {
	for _, name := range []string{"s1", "s2", "s3"} {
		if _, err := b.configMap(name, map[string]string{"check": "streamed"}); err != nil {
			return err
		}
	}
	initial := true
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	stream, err := maps.Watch(b, metav1.ListOptions{
		SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, LabelSelector: "check=streamed",
	})
	if err != nil {
		return err
	}
	defer stream.Stop()
	added := 0
	for event := range stream.ResultChan() {
		m, ok := event.Object.(*corev1.ConfigMap)
		switch {
		case !ok:
			return fmt.Errorf("unexpected event %v %v", event.Type, event.Object)
		case event.Type == watch.Added && added < 3:
			added++
		case event.Type == watch.Bookmark && m.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			if added != 3 {
				return fmt.Errorf("the list ended after %d objects", added)
			}
			if err := maps.Delete(b, "s2", metav1.DeleteOptions{}); err != nil {
				return err
			}
		case event.Type == watch.Deleted && m.Name == "s2":
			return nil
		default:
			return fmt.Errorf("unexpected event %v %v", event.Type, m.Name)
		}
	}
	return fmt.Errorf("the watch ended after %d objects", added)
}

func pages(b environment) error {
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	for n := range 25 {
		if _, err := b.configMap(fmt.Sprintf("page-%02d", n), map[string]string{"check": "pages"}); err != nil {
			return err
		}
	}
	requests := 0
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		requests++
		if requests == 2 {
			// The object is on a page that is not read yet, but still exists at the resource version of the first page.
			if err := maps.Delete(ctx, "page-20", metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
		}
		return maps.List(ctx, options)
	})
	p.PageSize = 10
	seen := 0
	err := p.EachListItem(b, metav1.ListOptions{LabelSelector: "check=pages"}, func(runtime.Object) error {
		seen++
		return nil
	})
	if err == nil && (seen != 25 || requests != 3) {
		err = fmt.Errorf("%d objects on %d pages", seen, requests)
	}
	return err
}
